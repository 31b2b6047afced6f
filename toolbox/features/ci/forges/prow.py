"""Prow, the CI system of Kubernetes and OpenShift: the comment `/test JOB` on a pull request of GitHub starts a job.

https://docs.prow.k8s.io/docs/jobs/#job-environment-variables describes `$JOB_SPEC`. It has the pull request and its
revision, but not the comment. So the comments of the pull request are searched for a `/test` of this job. Prow tests
pull requests of forks, after a member of the organization has allowed it.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import replace
from typing import Annotated, Final

from pydantic import BaseModel, Field, StringConstraints

from toolbox.features.ci.github import pull_requests
from toolbox.features.ci.github.pull_requests import GitHubPullRequests
from toolbox.ground.model.errors import UsageError
from toolbox.ground.model.forge_data import CiRun, CommentAction, CommentEvent
from toolbox.ground.system import environ
from toolbox.ground.system.event_files import Event

_SPEC: Final = "JOB_SPEC"
_PRESUBMIT: Final = "presubmit"
_TEST = re.compile(r"^/test[^\S\n]+(?P<job>[\w.-]{1,200})", re.MULTILINE)
_PAGES: Final = "TOPGALLANT_PROW_PAGES"
_OPENSHIFT: Final = "https://prow.ci.openshift.org/view/gs"
_BUCKET: Final = "test-platform-results"
# Build ids are snowflakes: milliseconds since this time, in all bits except the last 22.
_EPOCH: Final = dt.datetime(2010, 11, 4, 1, 42, 54, 657_000, tzinfo=dt.UTC)
_SNOWFLAKE_BITS: Final = 22
_SNOWFLAKE = re.compile(r"[0-9]{17,19}")  # shorter ids are counters

_Name = Annotated[str, StringConstraints(pattern=r"^[\w.-]+$", max_length=200)]


class _Pull(BaseModel):
    number: Annotated[int, Field(ge=1)]
    sha: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]


class _Refs(BaseModel):
    org: _Name
    repo: _Name
    base_ref: str = ""
    pulls: list[_Pull] = []


class _Bucket(BaseModel):
    bucket: _Name = _BUCKET


class _Decoration(BaseModel):
    gcs_configuration: _Bucket = _Bucket()


class _JobSpec(BaseModel):
    type: str
    job: _Name
    buildid: _Name
    refs: _Refs | None = None
    decoration_config: _Decoration = _Decoration()

    @property
    def pull_request(self) -> tuple[_Refs, _Pull] | None:
        """The repository and the pull request; None if the job tests something else, or several pull requests."""
        if self.type != _PRESUBMIT or self.refs is None or len(self.refs.pulls) != 1:
            return None
        return self.refs, self.refs.pulls[0]

    @property
    def started(self) -> dt.datetime:
        """When the job was created; the present time if its id does not tell it."""
        if not _SNOWFLAKE.fullmatch(self.buildid):
            return dt.datetime.now(dt.UTC)
        return _EPOCH + dt.timedelta(milliseconds=int(self.buildid) >> _SNOWFLAKE_BITS)

    def is_addressed_by(self, name: str) -> bool:
        """Return whether `/test NAME` starts this job.

        Names of jobs are `pull-ci-ORGANIZATION-REPOSITORY-BRANCH-NAME` on OpenShift, and end with `-NAME` elsewhere.
        """
        if self.refs is not None:
            prefix = f"pull-ci-{self.refs.org}-{self.refs.repo}-{self.refs.base_ref}-"
            if self.job.startswith(prefix):
                return self.job.removeprefix(prefix) == name
        return self.job == name or self.job.endswith(f"-{name}")


class Forge:
    """A job of Prow."""

    @staticmethod
    def is_current() -> bool:
        """Return whether this process runs in a job of Prow."""
        return environ.get(_SPEC) is not None

    def events(self) -> list[CommentEvent]:
        """Return the comments with a `/test` of this job that were written before the job, and not edited since."""
        spec = _spec()
        if spec.pull_request is None:
            return []
        _, pull = spec.pull_request
        found = []
        for event in self.pull_requests().events(pull.number):
            jobs = [name for name in _TEST.findall(event.text) if spec.is_addressed_by(name)]
            is_original = event.action is CommentAction.CREATED
            if jobs and is_original and event.created is not None and event.created <= spec.started:
                found.append(replace(event, revision=pull.sha, job=jobs[0]))
        return found[::-1]

    def run(self) -> CiRun:
        """Return the job, with its page on OpenShift's CI or below the address in `$TOPGALLANT_PROW_PAGES`."""
        spec = _spec()
        bucket = spec.decoration_config.gcs_configuration.bucket
        place = f"logs/{spec.job}"
        if spec.pull_request is not None:
            refs, pull = spec.pull_request
            place = f"pr-logs/pull/{refs.org}_{refs.repo}/{pull.number}/{spec.job}"
        return CiRun(spec.buildid, f"{environ.get(_PAGES) or _OPENSHIFT}/{bucket}/{place}/{spec.buildid}")

    def pull_requests(self) -> GitHubPullRequests:
        """Return the pull requests of the tested repository."""
        spec = _spec()
        if spec.refs is None:
            raise UsageError(f"${_SPEC} names no repository: this job tests no pull request")
        return pull_requests.from_environment(f"{spec.refs.org}/{spec.refs.repo}", allows_forks=True)

    def cancel(self, run: str) -> bool:
        """Refuse: Prow itself ends older jobs."""
        raise UsageError(f"/cancel does not work on Prow: abort the job {run} on its page, or write `/test` again")


def _spec() -> _JobSpec:
    text = environ.get(_SPEC)
    if text is None:
        raise UsageError(f"${_SPEC} is not set: Prow sets this variable")
    return Event(text, f"the variable ${_SPEC}").parsed(_JobSpec)
