"""A comment may skip phases."""

from __future__ import annotations

from tests.functional.test_run_steps import Steps
from tests.functional.test_run_steps import steps as steps  # noqa: PLC0414  # re-exports the fixture


def test_a_comment_can_skip_pre_cleanup(steps: Steps) -> None:
    outcome = steps.workspace.run("ci", "run", "--text=/test steps\n/skip pre_cleanup")
    assert outcome.exit_code == 0, str(outcome)
    assert steps.log == ["prepare", "test built-7", "post_cleanup built-7"]
