"""Formats values for messages."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

LONGEST_LINE: Final = 160
_MINUTE: Final = 60
_HOUR: Final = 3600
_SHOULD: Final = re.compile(r"\w+(?: input)? should (.+?)(?:, unable to parse .+| after validation, not \d+)?")
_MAPPING: Final = re.compile(r"a valid dictionary( or instance of \w+)?")


def truncate(text: str, longest: int = LONGEST_LINE) -> str:
    """Return a text with at most `longest` characters. An ellipsis replaces the end of a longer text."""
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def without_middle(lines: Sequence[str], most: int) -> Sequence[str]:
    """Return the lines. If there are more than `most` lines, one line such as `... 7 lines ...` replaces the middle."""
    if len(lines) <= most:
        return lines
    half = most // 2
    return [*lines[:half], f"... {len(lines) - 2 * half} lines ...", *lines[-half:]]


def first_of(texts: Sequence[str], most: int) -> list[str]:
    """Return the first texts, and `and 3 more` as the last text if there are further texts."""
    more = len(texts) - most
    return [*texts[:most], *([f"and {more} more"] if more > 0 else [])]


def abbreviated(value: object, *, longest: int = 60) -> str:
    """Return the repr of a value, truncated if it is long. Null, booleans and dates are written as in YAML."""
    is_plain = value is None or isinstance(value, bool | dt.date)
    return truncate(as_text(value) if is_plain else repr(value), longest)


def duration(seconds: float | None, digits: int = 1) -> str:
    """Return a duration as text: `0.5 s`, `2 min 5 s`, `1 h 3 min`; empty if the duration is unknown.

    Args:
        digits: the number of decimal places for durations under a minute.
    """
    if seconds is None:
        return ""
    rounded = max(0.0, round(seconds, digits))
    if rounded < _MINUTE:
        return f"{rounded:.{digits}f} s"
    if rounded < _HOUR:
        return f"{int(rounded // _MINUTE)} min {int(rounded % _MINUTE)} s"
    return f"{int(rounded // _HOUR)} h {int(rounded % _HOUR // _MINUTE)} min"


def without_kind(message: str) -> str:
    """Return a message of pydantic as `must ...`, or the message of a validator without the prefix of pydantic."""
    if match := _SHOULD.fullmatch(message):
        return f"must {_MAPPING.sub('a mapping', match[1])}"
    return message.removeprefix("Value error, ")


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: `1 run`, `2 runs`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def tally(counts: Mapping[str, int], not_started: int) -> str:
    """Return the number of cells with each verdict: `3 passed, 1 failed, 2 not started`."""
    return ", ".join(f"{count} {word}" for word, count in [*counts.items(), ("not started", not_started)] if count > 0)


def as_text(value: object) -> str:
    """Return a configuration value as text: strings unchanged, and other values as YAML on one line."""
    if isinstance(value, str):
        return value
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else f"{'-' if value < 0 else ''}.inf"
    if value is None or isinstance(value, bool | int | float | Mapping | list):
        return json.dumps(with_text_keys(value), default=as_text, ensure_ascii=False)
    return str(value)


def with_text_keys(value: Any) -> Any:
    """Return a nested value whose keys are text, for JSON. In YAML, a key may also be a number or a date."""
    if isinstance(value, Mapping):
        return {as_text(key): with_text_keys(item) for key, item in value.items()}
    return [with_text_keys(item) for item in value] if isinstance(value, list) else value


def reason_first(output: str) -> str:
    """Return the last line of a program's error output, which gives the reason, and then up to three lines before it.

    A host may print a long banner before the reason.
    """
    lines = [line.rstrip() for line in output.splitlines() if line.strip()]
    if len(lines) < 2:  # noqa: PLR2004  # there is only the reason
        return "".join(lines)
    return "\n".join([lines[-1], "printed before it:", *(f"  {line.strip()}" for line in lines[-4:-1])])
