"""A terminal: a person passes the text of a comment, and may start everything. There is no pull request."""

from __future__ import annotations

from toolbox.ground.extensions.protocols import PullRequests
from toolbox.ground.model.errors import UsageError
from toolbox.ground.model.forge_data import CiRun, CommentEvent


class Forge:
    """No job of a CI system."""

    @staticmethod
    def is_current() -> bool:
        """Return False: every process that is not a job has this forge."""
        return False

    def events(self) -> list[CommentEvent]:
        """Return nothing: a person passes the text of the comment with `--text`."""
        return []

    def run(self) -> CiRun:
        """Return the only run of a terminal."""
        return CiRun("terminal", "")

    def pull_requests(self) -> PullRequests:
        """Refuse: a terminal has no pull requests."""
        raise UsageError("a terminal has no pull requests: use the command in a job of a CI system")

    def cancel(self, run: str) -> bool:
        """Refuse: runs in terminals cannot be cancelled from elsewhere."""
        raise UsageError(f"the run {run} cannot be cancelled from here: press Ctrl-C in the terminal of the run")
