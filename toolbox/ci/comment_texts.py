"""Writes what the comment and the commit status of a workflow run say: the plan, a refusal, or the report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from toolbox.ci import announcements, refusals
from toolbox.ci.comment_runs import CommentRun
from toolbox.ci.run_comment import LONGEST, State, WorkflowPart
from toolbox.reports.forge import markup

_ROOM: Final = 1000  # characters for the marker, the heading and the link
_MOST_LINES: Final = 30
_STATES: Final = {
    "pending": (State.PENDING, "runs"),
    "success": (State.SUCCESS, "passed"),
    "failure": (State.FAILURE, "did not pass"),
    "cancelled": (State.ERROR, "was cancelled, or exceeded its time limit"),
    "skipped": (State.ERROR, "was skipped"),
}


def status(result: str) -> tuple[State, str]:
    """Return the state and the description of the commit status for the result of a job."""
    return _STATES[result]


def pending(part: WorkflowPart, runs: Sequence[CommentRun]) -> str:
    """Return the comment that says what will run.

    Raises:
        UsageError: the comment requests something that is not possible.
    """
    lines = [line for run in runs for line in announcements.understood(run, needs_secrets=False)]
    return _page("will run", part, markup.preformatted(lines, _MOST_LINES, refusals.LONGEST_LINE))


def running(part: WorkflowPart, lines: Sequence[str]) -> str:
    """Return the comment that says how far the runs are.

    Args:
        lines: the milestones.
    """
    return _page("is running", part, markup.preformatted(lines, _MOST_LINES, refusals.LONGEST_LINE))


def refused(part: WorkflowPart, reason: str) -> str:
    """Return the comment that says why nothing runs."""
    lines = [line for line in reason.splitlines() if line.strip()]
    return _page("does not run", part, markup.preformatted(lines, _MOST_LINES, refusals.LONGEST_LINE))


def cancelled(part: WorkflowPart, numbers: Sequence[str]) -> str:
    """Return the comment that says which workflow runs were cancelled."""
    pages = part.url.rpartition("/")[0]
    links = ", ".join(f"[{number}]({pages}/{number})" for number in numbers)
    return _page("does not run any more" if numbers else "was not running", part, links and f"Cancelled: {links}")


def ended(part: WorkflowPart, result: str, report: str) -> str:
    """Return the comment about the end of the workflow run.

    Args:
        report: a report of the run as Markdown; empty if there is none.
    """
    return _page(_STATES[result][1], part, report)


def _page(what: str, part: WorkflowPart, content: str) -> str:
    head = f"**Topgallant**: `{part.project}` {what} ([workflow `{part.workflow}`]({part.url}))"
    return "\n\n".join([head, content] if content and len(content) <= LONGEST - _ROOM else [head])
