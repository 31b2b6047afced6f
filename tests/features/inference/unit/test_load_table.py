"""The figures of a load are printed as a table, with remarks on what they do not show."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from tests.features.inference.fakes.load_results import results, step
from toolbox.features.inference import load_table
from toolbox.features.inference.load_results import LoadResults


def shown(*steps: dict[str, Any], width: int = 200) -> list[str]:
    """Return the lines that are printed for some steps."""
    console = Console(file=io.StringIO(), width=width)
    load_table.show(LoadResults.model_validate(results(*steps)), console)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_each_step_is_a_row_with_times_in_milliseconds() -> None:
    *_, units, first, second = shown(step(0.5, latency=0.1), step(None, concurrency=8, latency=1.2345))
    assert units.split() == ["step", "requests", "errors", *(2 * ["per", "s"]), *(3 * ["p50/p95"])]
    assert first.split() == ["rate=0.5", "200", "0", "0.5", "80", "20/40", "2/4", "100/200"]
    assert second.split() == ["concurrency=8", "200", "0", "3.5", "80", "247/494", "24.7/49.4", "1234/2469"]


def test_a_terminal_of_eighty_columns_has_room() -> None:
    row = shown(step(None, concurrency=16, latency=1.2345), width=80)[3]
    assert row.split()[0] == "concurrency=16"


def test_goodput_is_shown_if_there_are_objectives() -> None:
    _, heading, _, row = shown(step(4, goodput=3.25))
    assert heading.split()[:2] == ["answers", "goodput"]
    assert row.split()[3:5] == ["4", "3.25"]


def test_a_missing_percentile_is_shown_with_the_number_of_samples() -> None:
    *_, row, remark = shown(step(4, samples=12))
    assert row.endswith("100/- (12)")
    assert remark == "(N): only N samples. p95 needs 20 samples, and p50 needs 2."


def test_an_overloaded_client_is_named() -> None:
    *_, remark = shown(step(400, client_delay={"samples": 200, "mean": 0.2, "p95": 0.4}))
    late = "requests were sent 400 ms later than planned"
    assert remark == f"rate=400: {late}: this machine was overloaded, so the figures are not valid"


def test_the_most_frequent_errors_are_shown_without_control_characters() -> None:
    messages = [{"message": f"\x1b]0;pwned\x07error\n{name}{300 * 'x'}", "requests": name} for name in (1, 2, 3, 4)]
    *_, heading, first, second, third, more = shown(step(4, errors=10, error_messages=messages))
    assert heading == "rate=4: 10 errors"
    assert first.startswith("  4 requests: error 4xxx")
    assert (first[-3:], len(first) < 230) == ("...", True)
    assert (second[2], third[2], more) == ("3", "2", "  and 1 more")


def test_refused_requests_are_shown_apart_from_errors() -> None:
    lines = shown(step(4, refused=3, resent=1))
    assert lines[-2:] == [
        "rate=4: 3 requests refused (429 or 503 with Retry-After)",
        "rate=4: 1 request sent twice, because the server had closed the reused connection",
    ]
