"""Writes directories of runs with loads, for the tests of their reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.browser.runs import HOSTILE, Run
from tests.features.inference.fakes.load_results import results, step, times
from toolbox.ground.model.verdicts import Verdict
from toolbox.records.runs.run_state import RunState

TIMES = ("first_token", "between_tokens", "per_token", "end_to_end")  # of a request


def loaded(directory: Path) -> RunState:
    """Write a run with loads on three servers: a normal one, one that is overloaded, and one with hostile figures."""
    run = Run(directory, project="inference")
    rates = [step(rate, latency=0.4 + rate**2 / 60, goodput=rate - 0.1, samples=15 * rate) for rate in (1, 2, 4, 8)]
    closed = [step(None, concurrency=number, latency=0.3 * number**0.5) for number in (1, 8, 64)]
    write_load(run.cell(config="float32", test="load"), results(*rates, *closed, first_token=0.2, end_to_end=30))
    errors = [{"message": HOSTILE, "requests": 12}, {"message": "the queue is full", "requests": 3}]
    slow = [step(rate, latency=0.02 * 9**place) for place, rate in enumerate((1, 4, 16))]
    broken: dict[str, Any] = {
        "requests": 15,
        "errors": 15,
        "error_messages": errors,
        **{name: times(0, 0) for name in TIMES},
    }
    write_load(run.cell(Verdict.FAILED, config="float16", test="load"), results(*slow, step(64, **broken)))
    odd = [step(rate, latency=rate) for rate in (0, 5e-324, 1e-12, 1e300)]
    write_load(
        run.cell(name=f"config={HOSTILE}", config="hostile", test="load"),
        results(*odd, step(2, name=HOSTILE[:90]), *(step(None, concurrency=each + 1) for each in range(200))),
    )
    return run.write(Verdict.FAILED)


def write_load(attempt: Path, content: object) -> None:
    """Write the results of a load into an attempt."""
    (attempt / "files").mkdir()
    (attempt / "files/load.json").write_text(json.dumps(content))
