"""Times two functions alternately in one process, because machines are noisy, and prints the ratio of their times."""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable


def seconds(function: Callable[[], object]) -> float:
    """Return the wall time of one call, in seconds."""
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def cpu_seconds(function: Callable[[], object]) -> float:
    """Return the processor time of the processes that one call starts and waits for, in seconds."""
    begin = resource.getrusage(resource.RUSAGE_CHILDREN)
    function()
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    return end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime


def compare(
    title: str, function: Callable[[], object], floor: Callable[[], object], *, rounds: int, limit: float | None = None
) -> bool:
    """Time two functions alternately, after one round of warm-up, and print the medians and the median ratio.

    Args:
        floor: the function to compare with.
        limit: the largest allowed ratio; None for no limit.

    Returns:
        whether the ratio is within its limit.
    """
    return compare_times(title, lambda: seconds(function), lambda: seconds(floor), rounds=rounds, limit=limit)


def compare_times(
    title: str, measure: Callable[[], float], measure_floor: Callable[[], float], *, rounds: int, limit: float | None
) -> bool:
    """Do the same with functions that return the time to compare, in seconds, for example a difference of two times."""
    measure()
    measure_floor()
    pairs = [(measure(), measure_floor()) for _ in range(rounds)]
    ratio = statistics.median(measured / reference for measured, reference in pairs)
    measured, reference = (statistics.median(column) for column in zip(*pairs, strict=True))
    within = limit is None or ratio <= limit
    verdict = "" if limit is None else f" (at most {limit:g}: {'yes' if within else 'NO'})"
    print(
        f"{title}\n  {measured * 1e3:.1f} ms against {reference * 1e3:.1f} ms: {ratio:.2f} times{verdict}", flush=True
    )
    return within
