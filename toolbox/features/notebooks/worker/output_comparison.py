"""Compares the outputs of an executed notebook with the outputs in its file, as nbval does.

The streams of a cell are merged. Texts are compared after the parts that always vary were replaced. Of images and other
binary data, only the kind is compared. Of an exception, the name and the message are compared.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from . import notebook_reading, varying_texts
from .failure_texts import cleaned, one_line

CHECK_TAG: Final = "nbval-check-output"
IGNORE_TAG: Final = "nbval-ignore-output"
MAX_TEXT: Final = 200_000  # characters of an output that are compared
MAX_TOTAL: Final = 8_000_000  # characters of all outputs
_DIFF_LINES: Final = 30
_LINE_LENGTH: Final = 300
_CONTEXT: Final = 2
_KIND_ONLY: Final = ("image/", "audio/", "video/", "application/vnd.jupyter.widget-view+json")


@dataclass(frozen=True)
class Comparison:
    """The outputs of a cell to compare."""

    number: int
    expected: Sequence[Any]
    found: Sequence[Any]


@dataclass(frozen=True)
class Mismatch:
    """An output that differs.

    Args:
        output: the name of the output, such as `stdout` or `text/html of output 1`.
        expected: the expected lines around the first difference.
        found: the lines of the new output there.
        diff: a unified diff of these lines.
    """

    number: int
    output: str
    expected: str
    found: str
    diff: str
    message: str


def is_compared(cell: Any, *, all_cells: bool) -> bool:
    """Return whether the tags of the cell or the settings require a comparison of the cell's outputs."""
    names = notebook_reading.tags(cell)
    return IGNORE_TAG not in names and (all_cells or CHECK_TAG in names)


def mismatches(comparisons: Sequence[Comparison], ignore: Sequence[tuple[str, str]]) -> list[Mismatch]:
    """Return the first difference of each cell whose outputs differ.

    Raises:
        PatternError: an expression of `ignore` cannot be used.
    """
    sides = [named_texts(outputs) for comparison in comparisons for outputs in (comparison.expected, comparison.found)]
    texts = [text for side in sides for text in side.values()]
    if sum(map(len, texts)) > MAX_TOTAL:
        raise varying_texts.PatternError(f"the outputs to compare have more than {MAX_TOTAL} characters")
    replaced = iter(varying_texts.configured_replacements(texts, ignore))
    normalized = [{name: _normalized(next(replaced)) for name in side} for side in sides]
    found = (
        _mismatch(comparison.number, expected, actual)
        for comparison, expected, actual in zip(comparisons, normalized[::2], normalized[1::2], strict=True)
    )
    return [mismatch for mismatch in found if mismatch]


def named_texts(outputs: Iterable[Any]) -> dict[str, str]:
    """Return the texts to compare, with the name of the output as the key. The text of an image is its kind."""
    streams: dict[str, list[str]] = {}
    texts: dict[str, str] = {}
    number = 0
    for output in outputs:
        if output["output_type"] == "stream":
            streams.setdefault(output["name"], []).append(output["text"])
        elif output["output_type"] == "error":
            texts["exception"] = f"{output['ename']}: {output['evalue']}"
        else:
            number += 1
            texts |= {f"{kind} of output {number}": _text(kind, data) for kind, data in sorted(output["data"].items())}
    merged = {name: _overwritten("".join(parts)) for name, parts in sorted(streams.items(), reverse=True)}
    return {name: text[:MAX_TEXT] for name, text in (merged | texts).items()}


def _text(kind: str, data: Any) -> str:
    if kind.startswith(_KIND_ONLY):
        return kind
    return data if isinstance(data, str) else json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False)


def _overwritten(text: str) -> str:
    """Return a text as a terminal shows it: text after a carriage return replaces the line, as in progress bars."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)


def _normalized(text: str) -> str:
    plain = varying_texts.without_defaults(cleaned(text))
    return "\n".join(line.rstrip() for line in plain.split("\n")).strip("\n")


def _mismatch(number: int, expected: Mapping[str, str], found: Mapping[str, str]) -> Mismatch | None:
    for name in [*expected, *(name for name in found if name not in expected)]:
        if expected.get(name) != found.get(name) and (expected.get(name) or found.get(name)):
            return _difference(number, name, expected.get(name), found.get(name))
    return None


def _difference(number: int, name: str, expected: str | None, found: str | None) -> Mismatch:
    sides = [_lines(text) for text in (expected, found)]
    first = next(
        (index for index, pair in enumerate(zip(*sides, strict=False)) if pair[0] != pair[1]), min(map(len, sides))
    )
    begin = max(0, first - _CONTEXT)
    shown = [[line[:_LINE_LENGTH] for line in lines[begin : begin + _DIFF_LINES]] for lines in sides]
    titles = f"expected {name}", f"found {name}"
    diff = difflib.unified_diff(shown[0], shown[1], *titles, n=_CONTEXT, lineterm="")
    if expected is None or found is None:
        message = (
            f"the {'expected ' if found is None else ''}{name} is {'missing' if found is None else 'not expected'}"
        )
    else:
        quoted = [f"`{one_line(lines[first], 80)}`" if first < len(lines) else "no such line" for lines in sides]
        message = f"{name} differs in line {first + 1}: expected {quoted[0]}, found {quoted[1]}"
    return Mismatch(number, name, "\n".join(shown[0]), "\n".join(shown[1]), "\n".join(diff), message)


def _lines(text: str | None) -> list[str]:
    return text.split("\n") if text else []
