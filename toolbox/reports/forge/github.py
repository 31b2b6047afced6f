"""A run as GitHub shows it: in the summary of a workflow's step, and in a comment."""

from __future__ import annotations

from typing import Final

from toolbox.reports.forge import run_markdown
from toolbox.runs.run_state import RunState

STEP_SUMMARY_BYTES: Final = 1 << 20  # of one step; what is longer is not shown at all
COMMENT_CHARACTERS: Final = 1 << 16  # a longer comment is refused


def step_summary(summary: RunState, *, artifacts_url: str = "") -> str:
    """Return a run for the file that `$GITHUB_STEP_SUMMARY` names. See `run_markdown.render`."""
    return run_markdown.render(summary, limit=STEP_SUMMARY_BYTES, artifacts_url=artifacts_url)


def comment(summary: RunState, *, artifacts_url: str = "") -> str:
    """Return a run for a comment on an issue or a pull request. See `run_markdown.render`."""
    return run_markdown.render(summary, limit=COMMENT_CHARACTERS, artifacts_url=artifacts_url)
