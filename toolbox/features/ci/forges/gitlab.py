"""GitLab CI: a webhook for comments triggers a pipeline, whose jobs find the event in a file.

https://docs.gitlab.com/ci/triggers/#use-a-webhook describes the trigger and the variable `$TRIGGER_PAYLOAD`.
"""

from __future__ import annotations

import re
from typing import Final

from toolbox.features.ci.gitlab import gitlab_api, note_payload
from toolbox.features.ci.gitlab.merge_requests import GitLabMergeRequests
from toolbox.ground.model.errors import UsageError
from toolbox.ground.model.forge_data import CiRun, CommentEvent
from toolbox.ground.system import environ

_TRIGGERED: Final = "trigger"
_PAYLOAD: Final = "TRIGGER_PAYLOAD"
_ENDED: Final = frozenset({"success", "failed", "canceled", "skipped"})
_NUMBER = re.compile(r"[0-9]{1,20}")


class Forge:
    """A job of GitLab CI."""

    @staticmethod
    def is_current() -> bool:
        """Return whether this process runs in a job of GitLab CI."""
        return environ.get("GITLAB_CI") == "true"

    def events(self) -> list[CommentEvent]:
        """Return the note that triggered the pipeline; nothing if something else did."""
        return note_payload.read(_PAYLOAD) if environ.get("CI_PIPELINE_SOURCE") == _TRIGGERED else []

    def run(self) -> CiRun:
        """Return the pipeline."""
        number = environ.get("CI_PIPELINE_ID") or "0"
        if not _NUMBER.fullmatch(number):
            raise UsageError("$CI_PIPELINE_ID must be a number: GitLab CI sets this variable")
        return CiRun(number, environ.get("CI_PIPELINE_URL") or "")

    def pull_requests(self) -> GitLabMergeRequests:
        """Return the merge requests of the project of the pipeline."""
        return GitLabMergeRequests(gitlab_api.from_environment())

    def cancel(self, run: str) -> bool:
        """Cancel a pipeline."""
        if not _NUMBER.fullmatch(run):
            return False
        api = gitlab_api.from_environment()
        path = f"pipelines/{run}"
        if gitlab_api.mapping(api.get(path)).get("status") in _ENDED:
            return False
        api.send("POST", f"{path}/cancel")
        return True
