"""GitHub Actions: a comment on a pull request starts a workflow, whose jobs find the event in a file.

https://docs.github.com/actions/reference/workflows-and-actions/variables describes the variables. Only the job that
checks the comment, and the job that reports, have a token; see docs/ci_workflows.md.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final

from toolbox.features.ci.github import comment_payload, github_api, pull_requests
from toolbox.features.ci.github.github_api import mapping
from toolbox.features.ci.github.pull_requests import GitHubPullRequests
from toolbox.ground.model.errors import RefusedRequest, UsageError
from toolbox.ground.model.forge_data import CiRun, CommentEvent
from toolbox.ground.system import environ

_COMMENT: Final = "issue_comment"
_PAGES: Final = "https://github.com"
_NUMBER = re.compile(r"[0-9]{1,20}")


class Forge:
    """A job of GitHub Actions."""

    @staticmethod
    def is_current() -> bool:
        """Return whether this process runs in a job of GitHub Actions."""
        return environ.get("GITHUB_ACTIONS") == "true"

    def events(self) -> list[CommentEvent]:
        """Return the comment that started the workflow; nothing if another event did."""
        return comment_payload.read("GITHUB_EVENT_PATH") if environ.get("GITHUB_EVENT_NAME") == _COMMENT else []

    def run(self) -> CiRun:
        """Return the workflow run, whose number is the same in all of its attempts."""
        number = environ.get("GITHUB_RUN_ID") or "0"
        if not _NUMBER.fullmatch(number):
            raise UsageError("$GITHUB_RUN_ID must be a number: GitHub Actions sets this variable")
        repository = environ.get("GITHUB_REPOSITORY") or ""
        return CiRun(number, f"{environ.get('GITHUB_SERVER_URL') or _PAGES}/{repository}/actions/runs/{number}")

    def pull_requests(self) -> GitHubPullRequests:
        """Return the pull requests of the repository of the workflow."""
        return pull_requests.from_environment()

    def cancel(self, run: str) -> bool:
        """Cancel a run of the workflow of this job.

        GitHub interrupts the run, kills it after ten seconds, and executes its cleanup steps.
        """
        if not _NUMBER.fullmatch(run):
            return False
        api = github_api.from_environment()
        try:
            # The number comes from a comment of the bot, which other workflows write too.
            path = str(mapping(api.get(f"actions/runs/{run}")).get("path")).partition("@")[0]
            if path != _workflow_file():
                return False
            api.send("POST", f"actions/runs/{run}/cancel", {})
        except RefusedRequest as refusal:
            if refusal.status not in {HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND}:  # it has ended, or was deleted
                raise
            return False
        return True


def _workflow_file() -> str:
    """Return the path of the workflow file of this job: `.github/workflows/NAME.yml`."""
    reference = environ.get("GITHUB_WORKFLOW_REF") or ""  # OWNER/NAME/.github/workflows/NAME.yml@refs/heads/BRANCH
    return "/".join(reference.partition("@")[0].split("/")[2:])
