"""The files that a workload left, as checks and sources of metrics read them.

A workload may have left anything: no file, a link to itself, a gigabyte in one line, bytes that are no text.
Whatever cannot be read is a ValueError whose message says which file and why.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Annotated, Final, TextIO

from pydantic import AfterValidator, Field

from toolbox.model.text import truncate

PIECE: Final = 1 << 16  # how many characters of a line are looked at together
LONGEST_MATCH: Final = 1 << 12  # in a line that is longer than a piece
_EXCERPT = 100
_TAIL_BYTES = 2048
_LONGEST_DOCUMENT: Final = 1 << 28  # bytes: JSON, YAML and profiles are held in memory whole


def _stays_inside(name: str) -> str:
    path = PurePath(name)
    if not path.parts or path.is_absolute() or ".." in path.parts or "\0" in name:
        raise ValueError(f"a file inside of the directory was expected, not {name!r}")
    return name


def _has_whole_stars(pattern: str) -> str:
    *folders, last = PurePath(pattern).parts
    if "**" in last or any("**" in folder and folder != "**" for folder in folders):
        raise ValueError("`**` stands for whole folders: write `**/NAME`")
    return pattern


def _compiles(pattern: str) -> str:
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
    return pattern


def _is_one_line(text: str) -> str:
    if "\n" in text or "\r" in text:
        raise ValueError("a text without line breaks was expected: logs are searched line by line")
    return text


RelativeFile = Annotated[str, AfterValidator(_stays_inside)]
RelativeGlob = Annotated[str, AfterValidator(_stays_inside), AfterValidator(_has_whole_stars)]
Expression = Annotated[str, Field(min_length=1), AfterValidator(_compiles)]
LineText = Annotated[str, Field(min_length=1, max_length=LONGEST_MATCH), AfterValidator(_is_one_line)]


@dataclass(frozen=True, slots=True)
class Found:
    """A match in a log.

    Args:
        line: the line that it is in, from 1 on.
        match: it; its string is the line, or a piece of one that is long.
    """

    line: int
    match: re.Match[str]

    @property
    def excerpt(self) -> str:
        """The line as a message shows it: quoted, and cut around the match where it is long."""
        text = self.match.string
        start = max(0, self.match.start() - _EXCERPT // 4) if len(text) > _EXCERPT else 0
        end = start + _EXCERPT
        return f"{'...' if start else ''}{text[start:end]!r}{'...' if end < len(text) else ''}"


@contextmanager
def readable(directory: Path, file: str) -> Iterator[Path]:
    """Give the path of a file, to be read inside.

    Raises:
        ValueError: there is no such file, or the system does not let us read it.
    """
    path = directory / file
    try:
        if not path.is_file():  # a named pipe is none either: nobody would ever write to it
            raise ValueError(f"{file} is not there")
        yield path
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror}") from None


def read_document(path: Path, file: str) -> bytes:
    """Return what a document holds.

    Args:
        file: its name in messages.

    Raises:
        ValueError: it is too long to be held in memory.
        OSError: it cannot be read.
    """
    with path.open("rb") as stream:
        found = stream.read(_LONGEST_DOCUMENT + 1) if path.stat().st_size <= _LONGEST_DOCUMENT else None
    if found is None or len(found) > _LONGEST_DOCUMENT:
        raise ValueError(f"{file} has more than {_LONGEST_DOCUMENT} bytes")
    return found


def matching(directory: Path, glob: str) -> list[Path]:
    """Return the files that match, sorted. What vanishes meanwhile, or leads nowhere, is no file."""
    found = []
    with suppress(OSError):  # a folder vanished, or a name is too long to be one
        for path in directory.glob(glob):
            with suppress(OSError):
                found += [path] if path.is_file() else []
    return sorted(found)


def last_line(file: Path) -> str:
    """Return the last line of a log that may be growing, cut where it is long; nothing where there is none."""
    try:
        with file.open("rb") as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - _TAIL_BYTES))
            lines = stream.read().decode("utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return truncate(next((line.strip() for line in reversed(lines) if line.strip()), ""))


def search(directory: Path, file: str, pattern: str) -> Iterator[Found]:
    """Yield every match in every line of a file, in order, without holding more than a piece of it.

    In a line of more than `PIECE` characters a match of up to `LONGEST_MATCH` is found as it is, a longer one
    may be cut. A carriage return ends a line, as progress bars use it; bytes that are no UTF-8 are replaced.

    Raises:
        ValueError: the file cannot be read.
    """
    with readable(directory, file) as path, path.open(encoding="utf-8", errors="replace") as log:
        yield from _matches(log, re.compile(pattern))


def _matches(log: TextIO, pattern: re.Pattern[str]) -> Iterator[Found]:
    line, kept, start = 1, "", 0
    while (piece := log.readline(PIECE)) or kept:
        is_end = piece.endswith("\n") or len(piece) < PIECE
        window = kept + piece.removesuffix("\n")
        # A match that starts in the last part of a piece may go on in the next one: it is looked for again there.
        settled = len(window) + 1 if is_end else len(window) - LONGEST_MATCH
        for match in pattern.finditer(window, start):
            if match.start() >= settled:
                break
            yield Found(line, match)
            start = match.end()
        if is_end:
            line, kept, start = line + 1, "", 0
        else:  # what stands before the start stays, for `^`, `\b` and what else looks back
            cut = settled - LONGEST_MATCH
            kept, start = window[cut:], max(start, settled) - cut
