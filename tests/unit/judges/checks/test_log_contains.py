"""The check `log_contains` requires a text in a log."""

from pathlib import Path

import pytest

from toolbox.ground.model.evidence import Judgement

from .conftest import Judge


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Return a log in which a line that is not UTF-8 precedes the matching line."""
    file = tmp_path / "stdout.log"
    file.write_bytes("step 1\ncaf\xe9\nFinished training run (a.b*)\nFinished again".encode("latin-1"))
    return file


@pytest.mark.usefixtures("log")
def test_the_first_line_that_contains_the_text_is_shown(judge: Judge) -> None:
    assert judge(check="log_contains", text="Finished") == Judgement(
        True, "'Finished' is in stdout.log:3: 'Finished training run (a.b*)'", "stdout.log", 3
    )


@pytest.mark.parametrize("text", ["finished", "1\\ncaf", "step  1", ".*", "step 1$"])
@pytest.mark.usefixtures("log")
def test_a_text_is_searched_literally(judge: Judge, text: str) -> None:
    message = f"{text!r} is not in stdout.log"
    assert judge(check="log_contains", text=text) == Judgement(False, message, "stdout.log")


@pytest.mark.usefixtures("log")
def test_special_characters_of_patterns_are_literal(judge: Judge) -> None:
    assert judge(check="log_contains", text="(a.b*)").passed


def test_a_long_line_is_shown_around_the_text(judge: Judge, log: Path) -> None:
    log.write_text("\n" + "-" * 500_000 + "ERROR\x1b[0m" + "=" * 500_000)
    found = judge(check="log_contains", text="ERROR")
    assert (found.passed, found.line) == (True, 2)
    assert found.message == rf"'ERROR' is in stdout.log:2: ...'{'-' * 25}ERROR\x1b[0m{'=' * 66}'..."
