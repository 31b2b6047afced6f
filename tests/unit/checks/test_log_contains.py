"""A text in a log."""

from pathlib import Path

import pytest

from toolbox.model.evidence import Judgement
from toolbox.orchestration import judging

from .conftest import Judge


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log with a line that is no UTF-8 before the one that counts."""
    file = tmp_path / "stdout.log"
    file.write_bytes("step 1\ncaf\xe9\nFinished training run (a.b*)\nFinished again".encode("latin-1"))
    return file


@pytest.mark.usefixtures("log")
def test_the_first_line_that_holds_the_text_is_told(judge: Judge) -> None:
    found = judge(check="log_contains", file="stdout.log", text="Finished")
    assert found == Judgement(True, "'Finished' is in stdout.log:3")


@pytest.mark.parametrize("text", ["finished", "run (a.b*)\nFinished", "step  1", ".*", "step 1\n$"])
@pytest.mark.usefixtures("log")
def test_a_text_is_looked_for_as_it_is_line_by_line(judge: Judge, text: str) -> None:
    assert judge(check="log_contains", file="stdout.log", text=text) == Judgement(
        False, f"{text!r} is not in stdout.log"
    )


@pytest.mark.usefixtures("log")
def test_characters_of_patterns_stand_for_themselves(judge: Judge) -> None:
    assert judge(check="log_contains", file="stdout.log", text="(a.b*)").passed


@pytest.mark.parametrize("is_directory", [False, True])
def test_a_log_that_is_not_there_fails(judge: Judge, tmp_path: Path, is_directory: bool) -> None:
    if is_directory:
        (tmp_path / "stdout.log").mkdir()
    assert judge(check="log_contains", file="stdout.log", text="x") == Judgement(False, "stdout.log is not there")


@pytest.mark.parametrize("spec", [{"text": ""}, {"text": None}, {"file": 3}, {"pattern": "x"}])
def test_a_wrong_field_is_refused_and_named(spec: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(spec))):
        judging.parse_check({"check": "log_contains", "file": "log", "text": "x", **spec})
