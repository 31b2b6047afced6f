"""The results of a load as the worker writes them to `load.json`."""

from __future__ import annotations

from typing import Any


def times(middle: float, samples: int = 200) -> dict[str, Any]:
    """Return the distribution of a time around its p50. A percentile with too few samples is null."""
    values = {"p50": middle, "p90": 1.5 * middle, "p95": 2 * middle, "p99": 4 * middle}
    needed = {"p50": 2, "p90": 10, "p95": 20, "p99": 100}
    known = {name: value if samples >= needed[name] else None for name, value in values.items()}
    mean, largest = (middle, 5 * middle) if samples else (None, None)
    return {"samples": samples, "mean": mean, "max": largest, **known}


def step(
    rate: float | None = 4, *, concurrency: int | None = None, latency: float = 0.1, samples: int = 200, **fields: Any
) -> dict[str, Any]:
    """Return the figures of a step.

    Args:
        latency: the p50 of the time of a whole answer; the other times are parts of it.
    """
    return {
        "name": f"rate={rate:g}" if rate is not None else f"concurrency={concurrency}",
        "rate": rate,
        "concurrency": concurrency,
        "seconds": 60.0,
        "warm_up": 10.0,
        "arrivals": "poisson",
        "requests": samples,
        "errors": 0,
        "error_messages": [],
        "offered_rate": rate or 3.5,
        "completed_rate": rate or 3.5,
        "goodput": None,
        "tokens_per_second": 80.0,
        "first_token": times(latency / 5, samples),
        "between_tokens": times(latency / 50, samples),
        "per_token": times(latency / 50, samples),
        "end_to_end": times(latency, samples),
        "client_delay": times(0.0005, samples),
        **fields,
    }


def results(*steps: dict[str, Any], **objectives: float) -> dict[str, Any]:
    """Return the content of `load.json`."""
    none = {"first_token": None, "per_token": None, "end_to_end": None}
    return {"objectives": {**none, **objectives}, "steps": list(steps)}
