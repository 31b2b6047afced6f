"""Writes what the comment and the commit status of a workflow run say: the plan, a refusal, or the report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from toolbox.config.contracts.ci import Contract
from toolbox.features.ci import announcements, refusals, retest_records, slash
from toolbox.features.ci.comment_runs import CommentRun
from toolbox.features.ci.earlier_runs import EarlierRun
from toolbox.features.ci.run_comment import LONGEST, WorkflowRun
from toolbox.ground.model.forge_data import CommitState
from toolbox.ground.model.text import first_of
from toolbox.reports.forge import markup

_MAX_DIFFERENCES: Final = 6
_LONGEST_DIFFERENCE: Final = 160
_PARTIAL: Final = "This is not the full run of the workflow, so its commit status is named"
# The room in characters for the marker, the record, the heading, the link, and what makes a run partial.
_ROOM: Final = retest_records.LONGEST + 1000 + 7000
MAX_DETAILS: Final = LONGEST - _ROOM
"""The largest size of a report."""
_MAX_LINES: Final = 30
_STATES: Final = {
    "pending": (CommitState.PENDING, "runs"),
    "success": (CommitState.SUCCESS, "passed"),
    "failure": (CommitState.FAILURE, "did not pass"),
    "cancelled": (CommitState.ERROR, "was cancelled, or exceeded its time limit"),
    "skipped": (CommitState.ERROR, "was skipped"),
}


def status(result: str) -> tuple[CommitState, str]:
    """Return the state and the description of the commit status for the result of a job."""
    return _STATES[result]


def pending(part: WorkflowRun, runs: Sequence[CommentRun]) -> str:
    """Return the comment that says what will run.

    Raises:
        UsageError: the comment requests something that is not possible.
    """
    lines = [line for run in runs for line in announcements.understood(run, needs_secrets=False)]
    page = _page("will run", part, markup.preformatted(lines, _MAX_LINES, refusals.LONGEST_LINE))
    return f"{retest_records.line(None)}\n{page}"


def running(part: WorkflowRun, lines: Sequence[str]) -> str:
    """Return the comment that says how far the runs are.

    Args:
        lines: the milestones.
    """
    page = _page("is running", part, markup.preformatted(lines, _MAX_LINES, refusals.LONGEST_LINE))
    return f"{retest_records.line(None)}\n{page}"


def refused(part: WorkflowRun, reason: str) -> str:
    """Return the comment that says why nothing runs."""
    lines = [line for line in reason.splitlines() if line.strip()]
    return _page("does not run", part, markup.preformatted(lines, _MAX_LINES, refusals.LONGEST_LINE))


def cancelled(part: WorkflowRun, runs: Sequence[str]) -> str:
    """Return the comment that says which runs were cancelled."""
    pages, _, own = part.url.rpartition("/")
    links = ", ".join(f"[{run}]({pages}/{run})" if own == part.run else f"`{run}`" for run in runs)
    return _page("does not run any more" if runs else "was not running", part, links and f"Cancelled: {links}")


def helped(part: WorkflowRun, block: Contract) -> str:
    """Return the comment that lists the commands, and what the configuration allows."""
    names = {
        "presets that a comment may choose": block.workflows[part.workflow].comment_presets,
        "jobs": block.named_jobs,
        "clusters": block.clusters,
        "fields that /var may change": block.overridable,
    }
    allowed = [f"{label}: {', '.join(values)}" for label, values in names.items() if values]
    lines = [*slash.HELP.splitlines(), *([""] if allowed else []), *allowed]
    return _page("accepts these commands", part, markup.preformatted(lines, _MAX_LINES, refusals.LONGEST_LINE))


def ended(part: WorkflowRun, result: str, report: str, unpassed: Sequence[EarlierRun] | None) -> str:
    """Return the comment about the end of the workflow run.

    Args:
        report: a report of the run as Markdown; empty if there is none.
        unpassed: what did not pass, for `/retest`; None if nothing is known about the run.
    """
    return f"{retest_records.line(unpassed)}\n{_page(_STATES[result][1], part, report)}"


def _page(what: str, part: WorkflowRun, content: str) -> str:
    workflow = f"workflow `{part.workflow}`"
    head = f"**Topgallant**: `{part.project}` {what} ({f'[{workflow}]({part.url})' if part.url else workflow})"
    parts = [head, *_partial_note(part), *([content] if content and len(content) <= LONGEST - _ROOM else [])]
    return "\n\n".join(parts)


def _partial_note(part: WorkflowRun) -> list[str]:
    """Return the paragraphs that say why a run is partial; none for a full run."""
    if not part.is_partial:
        return []
    lines = [" ".join(text.split()) for text in first_of(part.differences, _MAX_DIFFERENCES)]
    return [f"{_PARTIAL} `{part.status_name}`:", markup.preformatted(lines, _MAX_LINES, _LONGEST_DIFFERENCE)]
