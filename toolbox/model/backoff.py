"""The pauses between tries: each is longer than the one before, up to a limit."""

from __future__ import annotations

import random
from typing import Final

JITTER: Final = 0.2
_MOST_TRIES: Final = 50  # beyond them the limit counts: a power of them is still a number


def pause(tries: int, *, first: float, most: float, factor: float = 2.0) -> float:
    """Return how long to wait before the next try, in seconds.

    It is random by a fifth, so that those who failed at the same time do not return at the same time.

    Args:
        tries: the number of pauses before this one.
        first: the first pause, `most`: the longest one, both in seconds.
        factor: how much longer each pause is than the one before.
    """
    seconds = min(first * factor ** min(tries, _MOST_TRIES), most)
    return seconds * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311  # nobody may guess less by it
