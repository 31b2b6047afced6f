"""Computes the pauses between tries (backoff): each pause is longer than the previous one, up to a limit."""

from __future__ import annotations

import random
from typing import Final

JITTER: Final = 0.2
_MAX_TRIES: Final = 50  # by then, the longest pause is reached; a much larger exponent would overflow


def pause(tries: int, *, first: float, most: float, factor: float = 2.0) -> float:
    """Return how many seconds to wait before the next try.

    The pause varies randomly by up to a fifth, so that clients that failed at the same time retry at different times.

    Args:
        tries: the number of earlier pauses.
        first: the first pause in seconds.
        most: the longest pause in seconds.
    """
    seconds = min(first * factor ** min(tries, _MAX_TRIES), most)
    return seconds * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311  # not for security
