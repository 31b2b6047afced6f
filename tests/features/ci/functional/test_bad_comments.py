"""Comments with bad or hostile input lead to exit code 2 and one harmless message on stderr."""

from __future__ import annotations

import pytest

from tests.functional.test_bad_input import refuse
from tests.functional.test_hostile_text import STEERING, steered
from tests.functional.test_hostile_text import hostile as hostile  # noqa: PLC0414  # re-exports the fixture
from toolbox.testing import Workspace

COMMAND_LINES = {
    "comment with an unknown command": (["ci", "parse", "--text=/tset small"], "did you mean /test?"),
    "comment with an unknown project": (["ci", "run", "--text=/test smal"], "did you mean small?"),
    "comment with an unknown preset": (["ci", "run", "--text=/test small lod"], "did you mean loud?"),
    "comment with an unknown path": (["ci", "run", "--text=/test small\n/var greting: x"], "did you mean greeting?"),
    "comment with an unknown phase": (["ci", "run", "--text=/test small\n/skip tests"], "did you mean test?"),
    "comment without a command": (["ci", "run", "--text=looks good to me"], "does not request a run"),
}


@pytest.mark.parametrize(("argv", "expected"), COMMAND_LINES.values(), ids=COMMAND_LINES)
def test_a_bad_command_line_is_refused(small: Workspace, argv: list[str], expected: str) -> None:
    outcome = refuse(small, *argv)
    assert expected in outcome.stderr
    assert len(outcome.stderr.splitlines()) <= 5


@pytest.mark.parametrize(
    "argv", [["run", f"--text=/test {STEERING}"], ["parse", f"--text=/{STEERING}"]], ids=["run", "parse"]
)
def test_an_error_message_steers_neither_a_terminal_nor_a_ci_system(hostile: Workspace, argv: list[str]) -> None:
    outcome = hostile.run("ci", *argv)
    assert outcome.exit_code == 2, str(outcome)
    assert outcome.stderr
    assert steered(outcome.stdout + outcome.stderr) == []
