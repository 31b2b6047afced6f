"""Times two ways to do a thing in turn, in one run, and prints their ratio: these machines are noisy."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable


def seconds(function: Callable[[], object]) -> float:
    """Return how long one call takes, in seconds of wall time."""
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def compare(
    title: str, ours: Callable[[], object], floor: Callable[[], object], *, rounds: int, limit: float | None = None
) -> bool:
    """Time both in turn, after one round that does not count, and print medians and the median ratio.

    Args:
        limit: the ratio that must not be passed.

    Returns:
        whether the ratio is within its limit.
    """
    ours()
    floor()
    pairs = [(seconds(ours), seconds(floor)) for _ in range(rounds)]
    ratio = statistics.median(mine / other for mine, other in pairs)
    mine, other = (statistics.median(column) for column in zip(*pairs, strict=True))
    within = limit is None or ratio <= limit
    wanted = "" if limit is None else f" (at most {limit:g}: {'yes' if within else 'NO'})"
    print(f"{title}\n  {mine * 1e3:.1f} ms against {other * 1e3:.1f} ms: {ratio:.2f} times{wanted}")
    return within
