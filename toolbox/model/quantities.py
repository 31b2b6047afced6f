"""Types for the numeric parameters of commands, as in `jobs: Count | None = None`.

`toolbox.interface.signature` checks the numbers before a command starts. This module does not import pydantic, because
the import is slow, and `--help` does not need it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

# Ten years. Timers of the operating system and of Kubernetes fail with much larger numbers.
MOST_SECONDS: Final = 315_360_000


@dataclass(frozen=True, slots=True)
class Range:
    """A range of numbers.

    Args:
        above: the exclusive lower limit of the range.
    """

    above: float | None = None
    least: float | None = None
    most: float | None = None

    def __contains__(self, value: float) -> bool:
        """Return whether a number is in the range. NaN is in no range."""
        is_large_enough = (self.above is None or value > self.above) and (self.least is None or value >= self.least)
        return is_large_enough and (self.most is None or value <= self.most)

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
Seconds = Annotated[float, Range(above=0, most=MOST_SECONDS)]
SecondsOrZero = Annotated[float, Range(least=0, most=MOST_SECONDS)]
Cost = Annotated[float, Range(least=0, most=HIGHEST_COST)]
WholeSeconds = Annotated[int, Range(above=0, most=MOST_SECONDS)]
