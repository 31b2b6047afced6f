"""The source `log` reads a metric from the lines of a log."""

from pathlib import Path
from typing import Any

import pytest

from toolbox.judges.metrics.log import Source

LOG = b"""step 0: step_time 9.0 s, loss nan
caf\xe9
step 1: step_time 2e0 s, loss 3.5
step 2: step_time 1.5 s, loss 3.25
step 3: step_time 1.0 s, loss 3.0 (step_time 4.0 before)"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return the directory of the log."""
    (tmp_path / "stdout.log").write_bytes(LOG)
    return tmp_path


@pytest.mark.parametrize(
    ("spec", "value"),
    [
        ({}, 2.0),
        ({"warmup": 1}, 1.75),
        ({"aggregate": "first"}, 9.0),
        ({"aggregate": "last", "warmup": 4}, 4.0),
        ({"aggregate": "count"}, 5.0),
        ({"aggregate": "p90", "warmup": 1}, pytest.approx(3.4)),
        ({"aggregate": "each", "warmup": 1}, (2.0, 1.5, 1.0, 4.0)),
    ],
)
def test_every_match_in_every_line_counts_after_the_warmup(directory: Path, spec: dict[str, Any], value: Any) -> None:
    assert Source(pattern=r"step_time ([\d.e+-]+)", **spec).read(directory) == value


@pytest.mark.parametrize(
    ("pattern", "value"),
    [
        (r"(step) (?P<value>\d)", (0.0, 1.0, 2.0, 3.0)),
        (r"step (\d): step_time (\d)", (0.0, 1.0, 2.0, 3.0)),
        (r"(?:step) \d(?=:)", None),
        (r"\d(?=:)", (0.0, 1.0, 2.0, 3.0)),
    ],
)
def test_the_number_is_the_named_group_or_the_first_or_the_match(
    directory: Path, pattern: str, value: tuple[float, ...] | None
) -> None:
    source = Source(pattern=pattern, aggregate="each")
    if value is None:
        with pytest.raises(ValueError, match="must be a finite number, not 'step 0'"):
            source.read(directory)
    else:
        assert source.read(directory) == value


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (r"loss (\S+)", r"^stdout\.log:1: the match of .* must be a finite number, not nan$"),
        (r"^step [123]: (.*),", r"^stdout\.log:3: the match of .* must be a finite number, not 'step_time 2e0 s'$"),
        (r"step \d|caf(x)?", r"^stdout\.log:1: the match of .* must be a finite number, not ''$"),
    ],
)
def test_a_match_that_is_not_a_finite_number_is_shown_with_its_line(
    directory: Path, pattern: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Source(pattern=pattern).read(directory)


@pytest.mark.parametrize(
    ("line", "pattern", "part", "whole"),
    [
        ("took 0,160 s", r"([\d.]+)", "0", "0,160"),
        ("took 0,160 s", r"took ([\d.]+)", "0", "0,160"),
        ("took 0,160 s", r"([\d.]+) s", "160", "0,160"),
        ("1,234.5 tokens/s", r"[\d.]+ (?=tokens)", "234.5", "1,234.5"),
        ("1,234.5 tokens/s", r"(?P<value>[\d.]+) tokens", "234.5", "1,234.5"),
        ("took 1.234,5 s", r"[\d.]+", "1.234", "1.234,5"),
        ("loss -2,5", r"[-\d.]+", "-2", "-2,5"),
    ],
)
def test_a_part_of_a_number_with_a_comma_is_no_number(
    tmp_path: Path, line: str, pattern: str, part: str, whole: str
) -> None:
    (tmp_path / "stdout.log").write_text(line)
    with pytest.raises(
        ValueError, match=f"is {part}, a part of {whole}: write a decimal point, or match the comma too"
    ):
        Source(pattern=pattern).read(tmp_path)


@pytest.mark.parametrize(
    ("line", "pattern"),
    [
        ("loss 2,5", r"loss (\d),"),
        ("at 5,2", r"5,(\d)"),
        ("losses 2.0,2.5,1.5", r"[\d.]+"),
        ("2,2,2", r"\d"),
        ("2, 2", r"\d"),
        ("2,x", r"\d"),
    ],
)
def test_a_comma_that_is_in_no_number_may_stand_beside_a_match(tmp_path: Path, line: str, pattern: str) -> None:
    (tmp_path / "stdout.log").write_text(line)
    assert Source(pattern=pattern).read(tmp_path) == 2.0


def test_skipped_matches_need_not_be_numbers(directory: Path) -> None:
    assert Source(pattern=r"loss (\S+)", warmup=1, aggregate="max").read(directory) == 3.5


@pytest.mark.parametrize(("pattern", "warmup", "count"), [("speed", 0, 0), (r"loss (\S+)", 4, 4), ("x", 2, 0)])
def test_too_few_matches_are_an_error_with_their_number(directory: Path, pattern: str, warmup: int, count: int) -> None:
    with pytest.raises(ValueError, match=rf"the matches of .* in stdout\.log: {count} numbers were found"):
        Source(pattern=pattern, warmup=warmup).read(directory)
