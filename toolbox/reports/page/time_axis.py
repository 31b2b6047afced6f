"""The marks of a time axis that begins at 0."""

from __future__ import annotations

from typing import Final

from toolbox.ground.model.text import duration

_TICKS: Final = 4
_MAX_DIGITS: Final = 5


def ticks(seconds: float) -> list[tuple[float, str]]:
    """Return the positions of marks in percent and their texts, with enough digits for equal distances."""
    step = seconds / _TICKS
    digits = next(
        (digits for digits in range(1, _MAX_DIGITS) if abs(round(step, digits) - step) <= step / 20), _MAX_DIGITS
    )
    return [(100 * index / _TICKS, duration(step * index, digits)) for index in range(_TICKS + 1)]
