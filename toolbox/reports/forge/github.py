"""Renders a run for GitHub: for the summary of a step of a workflow, and for a comment.

`artifacts_url` is the address of the run directory, for links; if it is empty, the text names paths instead.
"""

from __future__ import annotations

from typing import Final

from toolbox.reports.forge import run_markdown
from toolbox.runs.run_state import RunState

STEP_SUMMARY_BYTES: Final = 1 << 20  # GitHub does not show a longer summary of a step
COMMENT_CHARACTERS: Final = 1 << 16  # GitHub refuses a longer comment


def step_summary(summary: RunState, *, artifacts_url: str = "") -> str:
    """Return the content of the file that `$GITHUB_STEP_SUMMARY` names."""
    return run_markdown.render(summary, limit=STEP_SUMMARY_BYTES, artifacts_url=artifacts_url)


def comment(summary: RunState, *, artifacts_url: str = "") -> str:
    """Return the text of a comment on an issue or a pull request."""
    return run_markdown.render(summary, limit=COMMENT_CHARACTERS, artifacts_url=artifacts_url)
