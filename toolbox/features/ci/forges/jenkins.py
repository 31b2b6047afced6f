"""Jenkins: a webhook of GitHub or GitLab starts a job, or a person starts the job with the text of a comment.

The plugin Generic Webhook Trigger gives the payload of a webhook to the job, which writes the payload into a file; see
docs/forges.md. The variables of Jenkins are on https://www.jenkins.io/doc/book/pipeline/jenkinsfile/.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from toolbox.features.ci.github import comment_payload
from toolbox.features.ci.github import pull_requests as github_pull_requests
from toolbox.features.ci.gitlab import gitlab_api, note_payload
from toolbox.features.ci.gitlab.merge_requests import GitLabMergeRequests
from toolbox.ground.extensions.protocols import PullRequests
from toolbox.ground.model.errors import UsageError
from toolbox.ground.model.foreign_text import clean
from toolbox.ground.model.forge_data import CiRun, CommentEvent
from toolbox.ground.model.text import abbreviated
from toolbox.ground.system import environ

EVENT_PATH: Final = "TOPGALLANT_EVENT_PATH"
EVENT_FORGE: Final = "TOPGALLANT_EVENT_FORGE"
_COMMENT: Final = "COMMENT"
_GITHUB: Final = "github"
_GITLAB: Final = "gitlab"
_LONGEST_ID: Final = 200
_UNSAFE = re.compile(r"[^\w.-]")


class Forge:
    """A job of Jenkins."""

    @staticmethod
    def is_current() -> bool:
        """Return whether this process runs in a job of Jenkins."""
        return environ.get("JENKINS_URL") is not None and environ.get("BUILD_TAG") is not None

    def events(self) -> list[CommentEvent]:
        """Return the comment of the webhook, or of the parameter `COMMENT` of a job that a person started."""
        if environ.get(EVENT_PATH) is None:
            text = environ.get(_COMMENT)
            return [] if text is None else [CommentEvent(text)]
        events = comment_payload.read(EVENT_PATH) if _event_forge() == _GITHUB else note_payload.read(EVENT_PATH)
        return [replace(event, description="") for event in events]  # nothing says that the webhook is not forged

    def run(self) -> CiRun:
        """Return the build."""
        return CiRun(_UNSAFE.sub("-", environ.get("BUILD_TAG") or "0")[:_LONGEST_ID], environ.get("BUILD_URL") or "")

    def pull_requests(self) -> PullRequests:
        """Return the pull requests of the forge that sent the webhook."""
        if _event_forge() == _GITHUB:
            return github_pull_requests.from_environment()
        return GitLabMergeRequests(gitlab_api.from_environment())

    def cancel(self, run: str) -> bool:
        """Refuse: a job cannot abort other builds."""
        raise UsageError(f"/cancel does not work on Jenkins: abort the build {run} on its page")


def _event_forge() -> str:
    name = environ.get(EVENT_FORGE) or ""
    if name not in (_GITHUB, _GITLAB):
        raise UsageError(f"${EVENT_FORGE} must be {_GITHUB} or {_GITLAB}, not {abbreviated(clean(name))}")
    return name
