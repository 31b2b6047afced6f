"""Prints the figures of a load on an inference server as a table, with its errors and with what to know about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from toolbox.features.inference.load_results import LONGEST_CLIENT_DELAY, LoadResults, StepResult, Times
from toolbox.ground.model.text import counted, first_of

_MAX_MESSAGES: Final = 3  # errors of a step
_TIMES: Final = ("first\ntoken, ms", "between\ntokens, ms", "end to\nend, ms")
_WIDE: Final = 100  # columns of a terminal
_HUNDREDS: Final = 100


def show(results: LoadResults, console: Console) -> None:
    """Print a row for each step, and remarks below the table."""
    has_goodput = any(step.goodput is not None for step in results.steps)
    gap = 2 if console.width >= _WIDE else 1
    table = Table(box=None, pad_edge=False, show_edge=False, header_style="bold", padding=(0, gap, 0, 0))
    table.add_column("step", overflow="fold")
    rates = ["answers\nper s", *(["goodput\nper s"] if has_goodput else []), "tokens\nper s"]
    for name in ("requests", "errors", *rates, *(f"{time}\np50/p95" for time in _TIMES)):
        table.add_column(name, justify="right", overflow="fold")
    for step in results.steps:
        table.add_row(step.name, *_cells(step, has_goodput=has_goodput))
    console.print(table)
    for remark in _remarks(results.steps):
        console.print(Text(remark), soft_wrap=True)


def _cells(step: StepResult, *, has_goodput: bool) -> Iterator[str]:
    yield str(step.requests)
    yield str(step.errors)
    yield _digits(step.completed_rate)
    if has_goodput:
        yield _digits(step.goodput)
    yield _digits(step.tokens_per_second)
    yield from map(_percentiles, (step.first_token, step.between_tokens, step.end_to_end))


def _percentiles(times: Times) -> str:
    """Return p50 and p95 in milliseconds, and the number of samples if one of them is missing."""
    shown = "/".join(_digits(None if value is None else 1000 * value) for value in (times.p50, times.p95))
    return shown if None not in (times.p50, times.p95) else f"{shown} ({times.samples})"


def _digits(number: float | None) -> str:
    """Return a number with three significant digits, or with all digits before the point."""
    if number is None:
        return "-"
    return f"{number:.0f}" if _HUNDREDS <= number < 1e9 else f"{number:.3g}"  # noqa: PLR2004


def _remarks(steps: Sequence[StepResult]) -> Iterator[str]:
    times = [time for step in steps for time in (step.first_token, step.between_tokens, step.end_to_end)]
    if any(None in (time.p50, time.p95) for time in times):
        yield "(N): only N samples. p95 needs 20 samples, and p50 needs 2."
    for step in steps:
        if step.lateness > LONGEST_CLIENT_DELAY:
            late = f"{_digits(1000 * step.lateness)} ms later than planned"
            yield f"{step.name}: requests were sent {late}: this machine was overloaded, so the figures are not valid"
    for step in steps:
        yield from (f"{step.name}: {remark}" for remark in step.remarks)
        if step.errors:
            messages = sorted(step.error_messages, key=lambda each: -each.requests)
            yield f"{step.name}: {counted(step.errors, 'error')}"
            yield from (f"  {text}" for text in first_of([str(each) for each in messages], _MAX_MESSAGES))
