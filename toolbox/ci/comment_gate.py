"""Decides whether the comment that started a job may start runs, and answers the comment on its pull request.

A comment of a person who may not start runs gets no answer, so that strangers cannot make the bot write.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from pathlib import Path

from toolbox.ci import comment_files, comment_runs, comment_texts, refusals, run_comment, slash
from toolbox.ci.comment_runs import CommentRun, Settings
from toolbox.ci.refusals import Fault
from toolbox.ci.run_comment import WorkflowPart
from toolbox.ci.slash import CommentRequest
from toolbox.config.contracts.ci import Contract, Workflow
from toolbox.extensions.protocols import Forge, PullRequests
from toolbox.model.errors import InfrastructureError, UsageError, describe
from toolbox.model.foreign_text import clean
from toolbox.model.forge_data import CommentAction, CommentEvent, CommitState
from toolbox.model.nearest import did_you_mean
from toolbox.model.text import abbreviated
from toolbox.orchestration import projects
from toolbox.orchestration import request as run_requests
from toolbox.orchestration.request import RunRequest
from toolbox.system import places

log = logging.getLogger(__name__)

_REVISION = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


class Decision(Enum):
    """What a job does about its comment."""

    START = auto()
    ANSWERED = auto()
    IGNORE = auto()


@dataclass(frozen=True, slots=True)
class Admission:
    """What a comment may start.

    Args:
        revision: the pinned revision; None if the comment is not on a pull request.
        runs: the runs to start.
    """

    decision: Decision
    revision: str | None = None
    runs: Sequence[CommentRun] = ()


@dataclass(frozen=True)
class Job:
    """A job that a comment started.

    Args:
        part: the workflow that answers the comment.
        artifact_dir: the directory of the runs; None for the default directory.
    """

    forge: Forge
    event: CommentEvent
    part: WorkflowPart
    artifact_dir: Path | None = None

    @cached_property
    def pull_requests(self) -> PullRequests:
        """The pull requests of the repository."""
        return self.forge.pull_requests()

    @cached_property
    def block(self) -> Contract:
        """The block `ci` of the configuration of the project."""
        return run_requests.configure(RunRequest(self.part.project))[1].block("ci", Contract)

    @cached_property
    def workflow(self) -> Workflow:
        """The workflow in the configuration.

        Raises:
            UsageError: there is no such workflow, or comments do not start it.
        """
        workflows = self.block.workflows
        if self.part.workflow not in workflows:
            hint = did_you_mean(self.part.workflow, workflows, label="workflows")
            raise UsageError(f"the project {self.part.project} has no workflow `{self.part.workflow}`: {hint}")
        if not workflows[self.part.workflow].comment:
            raise UsageError(
                f"comments do not start the workflow {self.part.workflow}: add `comment: true` and `revision` to "
                f"ci.workflows.{self.part.workflow} of config/{self.part.project}.yaml"
            )
        return workflows[self.part.workflow]

    def settings(self, revision: str | None, override_files: Sequence[Path] = ()) -> Settings:
        """Return what the configuration decides about the runs of the comment.

        Args:
            revision: the tested revision; None to keep the value of the configuration.

        Raises:
            UsageError: there is no such workflow, or the revision is not a commit.
        """
        field = self.workflow.revision
        if revision is not None and not _REVISION.fullmatch(revision):
            raise UsageError(f"{abbreviated(clean(revision))} is not a full commit: use what `ci pin` printed")
        trusted = {field: revision} if field is not None and revision is not None else {}
        presets, choices = self.workflow.presets, self.workflow.comment_presets
        return Settings(self.part.project, presets, choices, override_files, trusted, self.artifact_dir)

    def publish(self, text: str) -> str:
        """Create the comment of this run or replace its text, and return its address.

        Raises:
            InfrastructureError: the forge refused a request.
        """
        if self.event.pull_request is None:
            return str(comment_files.write(self.part, text, self.artifact_dir))
        return run_comment.publish(self.pull_requests, self.event.pull_request, self.part, text)

    def set_status(self, revision: str | None, state: CommitState, description: str) -> None:
        """Show the state of the workflow on the tested commit.

        Raises:
            InfrastructureError: the forge refused the request.
        """
        if self.event.pull_request is not None and revision is not None:
            run_comment.set_status(self.pull_requests, revision, self.part, state, description)


def of_event(
    project: str, workflow: str, forge: Forge, event: CommentEvent | None, *, artifact_dir: Path | None = None
) -> Job:
    """Return the job of a comment.

    Raises:
        UsageError: there is no comment or no such project, or the name of the workflow is wrong.
    """
    if event is None:
        raise UsageError("no comment on a pull request started this job: pass the text of a comment with --text")
    return Job(forge, event, part_of(project, workflow, forge), artifact_dir)


def part_of(project: str, workflow: str, forge: Forge) -> WorkflowPart:
    """Return the workflow of a project that this job runs.

    Raises:
        UsageError: the project does not exist, or the name of the workflow is wrong.
    """
    if not re.fullmatch(r"[\w.-]{1,100}", workflow):  # the markers of issues and comments contain the name
        raise UsageError(f"{abbreviated(clean(workflow))} is not a name of a workflow: use letters, digits, _ and -")
    run = forge.run()
    return WorkflowPart(projects.find(project).name, workflow, run.id, run.url)


def requested(job: Job, settings: Settings) -> list[CommentRun]:
    """Return the runs that the comment of a job requests. Another job has admitted the comment.

    Raises:
        UsageError: the comment is wrong.
    """
    comment, faults = slash.read(job.event.text, places.projects())
    return comment_runs.of(comment, settings, faults)


def admit(job: Job, override_files: Sequence[Path] = ()) -> Admission:
    """Decide about the comment of a job, and answer the comment: with the plan, or with the reason of a refusal.

    Raises:
        UsageError: the comment is refused.
        InfrastructureError: the forge refused a request.
    """
    if job.event.action is not CommentAction.CREATED:
        log.info("the comment was %s: nothing runs", job.event.action.value)
        return Admission(Decision.IGNORE)
    comment, faults = slash.read(job.event.text, places.projects())
    if not _concerns(comment, job.part.project, job.event.text, has_faults=bool(faults)):
        log.info("the comment does not request the project %s", job.part.project)
        return Admission(Decision.IGNORE)
    if not _may_start(job):
        return Admission(Decision.IGNORE)
    try:
        with refusals.short():
            return _admit(job, comment, faults, override_files)
    except UsageError as refusal:
        with not_fatal("the refusal could not be written into a comment"):
            job.publish(comment_texts.refused(job.part, str(refusal)))
        raise


@contextmanager
def not_fatal(problem: str) -> Iterator[None]:
    """Log an error of a forge as a warning."""
    try:
        yield
    except InfrastructureError as error:
        log.warning("%s: %s", problem, describe(error))


def _may_start(job: Job) -> bool:
    """Return whether the author of the comment may start runs. The CI system decides about jobs started by hand."""
    if job.event.pull_request is None:
        return True
    is_allowed = job.pull_requests.may_start(job.event, job.block.allowed_commenters)
    if not is_allowed:
        log.warning(
            "%s may not start runs: ci.commenters of config/%s.yaml says whose comments may",
            abbreviated(clean(job.event.author)),
            job.part.project,
        )
    return is_allowed


def _concerns(comment: CommentRequest, project: str, text: str, *, has_faults: bool) -> bool:
    """Return whether a comment is for a project. Other comments may contain commands of other programs."""
    names_project = re.search(rf"^/test\b.*(?<![\w.-]){re.escape(project)}(?![\w.-])", text, re.MULTILINE) is not None
    is_requested = any(test.project == project for test in comment.tests)
    return comment.cancel or is_requested or (has_faults and names_project)


def _admit(job: Job, comment: CommentRequest, faults: list[Fault], override_files: Sequence[Path]) -> Admission:
    refusals.raise_for(faults)
    if job.event.pull_request is not None:
        job.pull_requests.verify(job.event)
    if comment.cancel:
        _cancel(job, comment)
        return Admission(Decision.ANSWERED)
    return _start(job, comment, override_files)


def _start(job: Job, comment: CommentRequest, override_files: Sequence[Path]) -> Admission:
    """Pin the revision, check a comment, and show what will run.

    Raises:
        UsageError: the comment may not start the run.
    """
    if comment.help:
        return Admission(Decision.IGNORE)
    if comment.retest:
        raise UsageError("/retest does not work on GitHub, because a job does not have the earlier runs: use /test")
    revision = _pinned(job)
    runs = comment_runs.of(comment, job.settings(revision, override_files))
    text = comment_texts.pending(job.part, runs)
    with not_fatal("the plan could not be written into a comment"):
        job.publish(text)
        job.set_status(revision, *comment_texts.status("pending"))
    return Admission(Decision.START, revision, runs)


def _pinned(job: Job) -> str | None:
    """Return the revision to test; None if the comment is not on a pull request.

    Raises:
        UsageError: the pull request may not be tested, or has changed since the comment.
    """
    if job.event.pull_request is None:
        return None
    revision = job.pull_requests.revision(job.event)
    if job.event.revision is not None and job.event.revision != revision:
        raise UsageError(
            f"the CI system tests {abbreviated(clean(job.event.revision))}, but the comment is about {revision}:\n"
            "  look at the latest commits, and comment again"
        )
    return revision


def _cancel(job: Job, comment: CommentRequest) -> None:
    """Cancel the runs of a workflow for a pull request, and say which.

    Raises:
        UsageError: the comment contains other commands, or is not on a pull request.
    """
    if comment.tests or comment.retest or comment.help:
        raise UsageError("/cancel cannot be used together with other commands: write two comments")
    if job.event.pull_request is None:
        raise UsageError("/cancel works only in a comment on a pull request: end the run where it was started")
    cancelled = run_comment.cancel(job.forge, job.pull_requests, job.event.pull_request, job.part)
    job.publish(comment_texts.cancelled(job.part, cancelled))
