"""Decodes JSON of a server, and reads values from it with their types. Anything unexpected is a FaultError."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from .answer_format import FaultError

_MAX_INTEGER: Final = 2**63
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
# What `decoded` makes of numbers that JSON does not have. protobuf writes them like this.
_NOT_NUMBERS: Final = ("NaN", "Infinity", "-Infinity")
_SHOWN_CHARACTERS: Final = 200
_MAX_DEPTH: Final = 100  # the reader of the answers has a limit, too
_TOO_DEEP: Final = "the JSON of the answer is nested too deeply"


def decoded(content: bytes | str) -> Any:
    """Return the value of a JSON text. NaN and infinite numbers become the strings "NaN", "Infinity", "-Infinity"."""
    try:
        text = content if isinstance(content, str) else content.decode()
        value = _DECODER.decode(text)
        if _SURROGATE.search(text.encode()):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise FaultError(f"the answer contains half of a UTF-16 pair: {error.reason}") from error
    except UnicodeDecodeError as error:
        raise FaultError(f"the answer is not UTF-8: {error}") from error
    except RecursionError as error:
        raise FaultError(_TOO_DEEP) from error
    except ValueError as error:
        raise FaultError(f"the answer is not JSON: {error}: {excerpt(content)}") from error
    if text.count("[") + text.count("{") > _MAX_DEPTH:
        _check_depth(value)
    return value


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(_MAX_DEPTH):
        objects = [item.values() for item in level if isinstance(item, dict)]
        lists = [item for item in level if isinstance(item, list)]
        level = [*itertools.chain.from_iterable(objects), *itertools.chain.from_iterable(lists)]
        if not level:
            return
    raise FaultError(_TOO_DEEP)


def _finite(text: str) -> float | str:
    number = float(text)
    return number if math.isfinite(number) else ("Infinity" if number > 0 else "-Infinity")


_DECODER: Final = json.JSONDecoder(parse_constant=str, parse_float=_finite)


def excerpt(content: bytes | str) -> str:
    """Return the beginning of a text of a server, printable and in quotes."""
    text = content if isinstance(content, str) else content[: 4 * _SHOWN_CHARACTERS].decode(errors="replace")
    return ascii(text[:_SHOWN_CHARACTERS]) + ("..." if len(text) > _SHOWN_CHARACTERS else "")


def mapping(value: object, place: str) -> Mapping[str, Any]:
    """Return a value that must be an object. `place` names the value in the message of the error."""
    if not isinstance(value, dict):
        raise _wrong(value, place, "an object")
    return value


def sequence(value: object, place: str) -> Sequence[Any]:
    """Return a value that must be a list."""
    if not isinstance(value, list):
        raise _wrong(value, place, "a list")
    return value


def text(value: object, place: str) -> str:
    """Return a value that must be a text."""
    if not isinstance(value, str):
        raise _wrong(value, place, "a text")
    return value


def count(value: object, place: str) -> int | None:
    """Return a value that must be null or a whole number that is not negative."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _MAX_INTEGER:
        raise _wrong(value, place, "a whole number that is not negative")
    return value


def finite_number(value: object, place: str) -> float | None:
    """Return a value that must be null or a number. Return None for NaN and infinite numbers."""
    if value is None or value in _NOT_NUMBERS:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _wrong(value, place, "a number")
    try:
        return float(value)
    except OverflowError as error:
        raise _wrong(value, place, "a number of ordinary size") from error


def _wrong(value: object, place: str, expected: str) -> FaultError:
    return FaultError(f"{place} of the answer is not {expected}: {excerpt(json.dumps(value))}")
