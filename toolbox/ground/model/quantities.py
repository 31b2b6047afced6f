"""Types for numbers in the flags of commands and in the configuration: counts, costs and durations.

A duration is a number of seconds, or a number with a unit, such as `90m`, `2h`, `1.5d` or `4w`. Wherever a number of
seconds is expected, both forms are accepted.

pydantic checks the numbers before a command starts. This module does not import pydantic, because the import is slow,
and `--help` does not need it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final

# Ten years. Timers of the operating system and of Kubernetes fail with much larger numbers.
MAX_SECONDS: Final = 315_360_000
UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
DURATION: Final = "a duration, in seconds or with a unit, such as 14400, 90m, 2h or 1.5d"
_WITH_UNIT: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*([smhdw])")
_MAX_EXACT: Final = 2**53


def seconds(text: str) -> float:
    """Return the number of seconds of a duration.

    Raises:
        ValueError: the text is not a duration. The message does not contain the text.
    """
    match = _WITH_UNIT.fullmatch(text.strip())
    try:
        return float(match[1]) * UNITS[match[2]] if match is not None else float(text)
    except ValueError:
        raise ValueError(f"must be {DURATION}") from None


@dataclass(frozen=True, slots=True)
class Duration:
    """Marks a number of seconds, which may be written as a duration."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        """Return the schema of the number, which also accepts texts."""
        from pydantic_core import core_schema

        return core_schema.no_info_before_validator_function(_number, handler(source))


def _number(value: object) -> object:
    if not isinstance(value, str):
        return value
    number = seconds(value)
    return int(number) if number.is_integer() and number < _MAX_EXACT else number  # some fields are whole numbers


@dataclass(frozen=True, slots=True)
class Range:
    """A range of numbers.

    Args:
        above: the exclusive lower limit of the range.
    """

    above: float | None = None
    least: float | None = None
    most: float | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        """Return the schema of the number, which refuses numbers outside of the range."""
        limits = {"gt": self.above, "ge": self.least, "le": self.most}
        return {**handler(source), **{name: limit for name, limit in limits.items() if limit is not None}}

    def __str__(self) -> str:
        """Return a description of the range, for a message."""
        parts = [
            *([f"above {self.above:g}"] if self.above is not None else []),
            *([f"of at least {self.least:g}"] if self.least is not None else []),
            *([f"of at most {self.most:.0f}"] if self.most is not None else []),
        ]
        return f"a number {' and '.join(parts)}"


HIGHEST_COST: Final = 1_000_000.0
"""A higher cost, or a higher price per hour, is a mistake."""
Count = Annotated[int, Range(above=0)]
Cost = Annotated[float, Range(least=0, most=HIGHEST_COST)]
Seconds = Annotated[float, Range(above=0, most=MAX_SECONDS), Duration()]
SecondsOrZero = Annotated[float, Range(least=0, most=MAX_SECONDS), Duration()]
WholeSeconds = Annotated[int, Range(above=0, most=MAX_SECONDS), Duration()]
AnySeconds = Annotated[float, Duration()]
"""A duration whose limits are checked by the field or the command that has it."""
AnyWholeSeconds = Annotated[int, Duration()]
"""The same, without fractions of a second."""
