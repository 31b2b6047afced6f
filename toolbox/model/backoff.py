"""Backoff: the pauses between tries. Each pause is longer than the one before, up to a limit."""

from __future__ import annotations

import random
from typing import Final

JITTER: Final = 0.2
_MOST_TRIES: Final = 50  # beyond this, the limit applies anyway, and the power might overflow


def pause(tries: int, *, first: float, most: float, factor: float = 2.0) -> float:
    """Return how long to wait before the next try, in seconds.

    The pause varies randomly by up to a fifth, so that clients that failed together don't retry together.

    Args:
        tries: the number of pauses before this one.
        first: the first pause in seconds.
        most: the longest pause in seconds.
        factor: the ratio of each pause to the one before.
    """
    seconds = min(first * factor ** min(tries, _MOST_TRIES), most)
    return seconds * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311  # not for security
