"""GitHub Actions: a comment on a pull request starts a workflow, whose jobs find the event in a file.

https://docs.github.com/actions/reference/workflows-and-actions/variables describes the variables. Only the job that
checks the comment, and the job that reports, have a token; see docs/ci_workflows.md.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from toolbox.github import comment_payload, github_api
from toolbox.github.pull_requests import MEMBERS_TOKEN, GitHubPullRequests
from toolbox.model.errors import RefusedRequest
from toolbox.model.forge_data import CiRun, CommentEvent
from toolbox.system import environ

_COMMENT: Final = "issue_comment"
_PAGES: Final = "https://github.com"


class Forge:
    """A job of GitHub Actions."""

    @staticmethod
    def is_current() -> bool:
        """Return whether this process runs in a job of GitHub Actions."""
        return environ.get("GITHUB_ACTIONS") == "true"

    def event(self) -> CommentEvent | None:
        """Return the comment that started the workflow; None if another event did."""
        return comment_payload.read("GITHUB_EVENT_PATH") if environ.get("GITHUB_EVENT_NAME") == _COMMENT else None

    def run(self) -> CiRun:
        """Return the workflow run, whose number is the same in all of its attempts."""
        number = environ.get("GITHUB_RUN_ID") or "0"
        repository = environ.get("GITHUB_REPOSITORY") or ""
        return CiRun(number, f"{environ.get('GITHUB_SERVER_URL') or _PAGES}/{repository}/actions/runs/{number}")

    def pull_requests(self) -> GitHubPullRequests:
        """Return the pull requests of the repository of the workflow."""
        return GitHubPullRequests(github_api.from_environment(), github_api.with_token_of(MEMBERS_TOKEN))

    def cancel(self, run: str) -> bool:
        """Cancel a workflow run. GitHub interrupts it, kills it after ten seconds, and executes its cleanup steps."""
        try:
            github_api.from_environment().send("POST", f"actions/runs/{int(run)}/cancel", {})
        except RefusedRequest as refusal:
            if refusal.status not in {HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND}:  # it has ended, or was deleted
                raise
            return False
        return True
