"""The check `log_matches` counts the lines of a log that match a regular expression."""

from pathlib import Path
from typing import Any

import pytest

from toolbox.ground.model.evidence import Judgement
from toolbox.judges.checks.log_matches import Check

from .conftest import Judge


@pytest.fixture(autouse=True)
def log(tmp_path: Path) -> Path:
    """Return a log in which two lines match `step \\d`, one of them twice."""
    file = tmp_path / "stdout.log"
    file.write_bytes(b"start\nstep 1, then step 2\nst\xff\nstep 3\n")
    return file


@pytest.mark.parametrize(
    ("bounds", "passed", "expected"),
    [
        ({}, True, "at least 1"),
        ({"at_least": 2}, True, "at least 2"),
        ({"at_least": 3}, False, "at least 3"),
        ({"at_most": 2}, True, "1 to 2"),
        ({"at_most": 1}, False, "exactly 1"),
        ({"at_most": 0}, False, "exactly 0"),
        ({"at_least": 0, "at_most": 3}, True, "0 to 3"),
    ],
)
def test_lines_that_match_are_counted_and_the_first_is_shown(
    judge: Judge, bounds: dict[str, int], passed: bool, expected: str
) -> None:
    message = (
        rf"2 lines of stdout.log match 'step \\d'; required: {expected}; the first is line 2: 'step 1, then step 2'"
    )
    assert judge(check="log_matches", pattern=r"step \d", **bounds) == Judgement(passed, message, "stdout.log", 2)


@pytest.mark.parametrize("bounds", [{}, {"at_most": 0}])
def test_no_match_fails_unless_no_match_is_expected(judge: Judge, bounds: dict[str, int]) -> None:
    expected = "exactly 0" if bounds else "at least 1"
    message = f"0 lines of stdout.log match 'error'; required: {expected}"
    assert judge(check="log_matches", pattern="error", **bounds) == Judgement(bool(bounds), message, "stdout.log")


@pytest.mark.parametrize(
    ("pattern", "count"), [("^st", 4), (r"\d$", 2), ("(?i)STEP", 2), ("start$", 1), ("1.*3", 0), (r"\s", 2), ("^$", 0)]
)
def test_a_pattern_does_not_match_across_lines(judge: Judge, pattern: str, count: int) -> None:
    assert judge(check="log_matches", pattern=pattern, at_least=0, at_most=count).message.startswith(f"{count} lines")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"pattern": "("}, "not a regular expression: missing"),
        ({"pattern": "a{99999999999999999999}"}, "not a regular expression"),
        ({"pattern": ""}, "pattern"),
        ({"at_least": 3, "at_most": 2}, "`at_least` is 3, which is more than `at_most`, 2"),
        ({"at_least": 1, "at_most": 0}, "`at_least` is 1, which is more than `at_most`, 0"),
        ({"at_least": 0}, "accepts every log"),
        ({"at_most": -1}, "at_most"),
        ({"file": "../x"}, "must be a relative path without"),
        ({"text": "x"}, "text"),
    ],
)
def test_limits_that_always_pass_or_always_fail_are_refused(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Check.model_validate({"pattern": "x", **spec})
