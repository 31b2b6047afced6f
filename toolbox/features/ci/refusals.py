"""Refuses comments: each refusal is at most five short lines of printable text, and names the lines with faults."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from toolbox.ground.model.errors import UsageError
from toolbox.ground.model.text import truncate

LONGEST_LINE: Final = 300
_MAX_LINES: Final = 5
_LONGEST_NAME: Final = 60
_MAX_CHARACTERS: Final = 3
_MAX_NUMBERS: Final = 8


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """A fault of a comment.

    Args:
        line: the line of the comment; 0 if the fault belongs to no line.
    """

    line: int
    text: str

    def __str__(self) -> str:
        """Return the fault with its line."""
        return f"line {self.line}: {self.text}" if self.line else self.text


def raise_for(faults: Iterable[Fault]) -> None:
    """Raise a refusal if there are faults.

    Raises:
        UsageError: the message names the first faults, and the lines of all others.
    """
    ordered = sorted(set(faults))
    if len(ordered) == 1:
        raise UsageError(f"the comment: {ordered[0]}")
    if ordered:
        texts = [" ".join(str(fault).split()) for fault in ordered]
        most = _MAX_LINES - 1
        if len(texts) > most:
            texts[most - 1 :] = [_others(ordered[most - 1 :])]
        raise UsageError("\n  ".join([f"the comment has {len(ordered)} faults:", *texts]))


@contextmanager
def short() -> Iterator[None]:
    """Shorten an error of the body to five short lines, and write unprintable characters as escapes.

    Raises:
        UsageError: the body raised an error of this type.
    """
    try:
        yield
    except UsageError as error:
        raise UsageError(shortened(str(error))) from error


def shortened(text: str) -> str:
    """Return a text as at most five lines, each with at most 300 printable characters."""
    lines = text.split("\n")
    if len(lines) > _MAX_LINES:
        lines[_MAX_LINES - 1 :] = [f"  and {len(lines) - _MAX_LINES + 1} more lines"]
    return "\n".join(truncate(escaped(line), LONGEST_LINE) for line in lines)


def escaped(text: str) -> str:
    """Return a text with an escape of Python for each unprintable character."""
    return "".join(each if each.isprintable() else _escape(each) for each in text)


def quoted(name: str) -> str:
    """Return a name from a comment between backticks. Characters that only look like ASCII are named."""
    shown = f"`{truncate(escaped(name), _LONGEST_NAME)}`"
    foreign = [f"U+{ord(each):04X}" for each in dict.fromkeys(name) if not each.isascii()]
    return f"{shown} (which contains {', '.join(foreign[:_MAX_CHARACTERS])})" if foreign else shown


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode()


def _others(faults: Sequence[Fault]) -> str:
    numbers = sorted({fault.line for fault in faults})
    shown = ", ".join(map(str, numbers[:_MAX_NUMBERS]))
    more = ", ..." * (len(numbers) > _MAX_NUMBERS)
    return f"and {len(faults)} more, in {'line' if len(numbers) == 1 else 'lines'} {shown}{more}"
