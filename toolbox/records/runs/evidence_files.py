"""Reads the files that a workload left, for checks and sources of metrics.

A workload may have left anything: no file, a link to itself, a gigabyte in one line, bytes that are not text.
For a file that cannot be read, the functions here raise a ValueError that names the file and the reason.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Annotated, Final, TextIO

from pydantic import AfterValidator, Field, ValidationError

from toolbox.ground.kit import safe_files
from toolbox.ground.model.foreign_text import clean
from toolbox.ground.model.text import truncate, without_kind

PIECE: Final = 1 << 16  # characters: a longer line is searched in pieces of this length
LONGEST_MATCH: Final = 1 << 12  # characters: in a line of several pieces, a longer match may be cut
_EXCERPT = 100  # characters
_TAIL_BYTES = 2048
_LONGEST_DOCUMENT: Final = 1 << 28  # bytes: JSON, YAML and profiles are read into memory as a whole


class RecordFault(ValueError):
    """A line of a file of records, or the whole file, cannot be read.

    Args:
        line: the number of the line, from 1; None if the whole file cannot be read.
    """

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


def _stays_inside(name: str) -> str:
    path = PurePath(name)
    if not path.parts or path.is_absolute() or ".." in path.parts or "\0" in name:
        raise ValueError(f"must be a relative path without `..`, not {name!r}")
    return name


def _has_whole_stars(pattern: str) -> str:
    *folders, last = PurePath(pattern).parts
    if "**" in last or any("**" in folder and folder != "**" for folder in folders):
        raise ValueError("`**` must be a whole part of the path, as in `**/NAME`")
    return pattern


def _compiles(pattern: str) -> str:
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
    return pattern


def _is_one_line(text: str) -> str:
    if "\n" in text or "\r" in text:
        raise ValueError("must not contain a line break, because logs are searched line by line")
    return text


RelativeFile = Annotated[str, AfterValidator(_stays_inside)]
RelativeGlob = Annotated[str, AfterValidator(_stays_inside), AfterValidator(_has_whole_stars)]
Expression = Annotated[str, Field(min_length=1), AfterValidator(_compiles)]
LineText = Annotated[str, Field(min_length=1, max_length=LONGEST_MATCH), AfterValidator(_is_one_line)]


@dataclass(frozen=True, slots=True)
class LogMatch:
    """A match in a log.

    Args:
        line: the number of the line, from 1.
        match: the match; `match.string` is the line, or a piece of a long line.
    """

    line: int
    match: re.Match[str]

    @property
    def excerpt(self) -> str:
        """The line in quotes. A long line is cut around the match."""
        text = self.match.string
        start = max(0, self.match.start() - _EXCERPT // 4) if len(text) > _EXCERPT else 0
        end = start + _EXCERPT
        return f"{'...' if start else ''}{text[start:end]!r}{'...' if end < len(text) else ''}"


@contextmanager
def readable(directory: Path, file: str) -> Iterator[Path]:
    """Yield the path of a file. An OSError in the body becomes a ValueError.

    Raises:
        ValueError: the file does not exist or cannot be read.
    """
    path = directory / file
    try:
        if not path.is_file():  # also refuse a named pipe: opening one may block forever
            raise ValueError(f"{file} {'is not a regular file' if path.exists() else 'does not exist'}")
        yield path
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror}") from None


def read_document(path: Path, file: str) -> bytes:
    """Return the content of a document.

    Args:
        file: the name of the document in messages.

    Raises:
        ValueError: the document is longer than 256 MiB.
        OSError: the document cannot be read.
    """
    with path.open("rb") as stream:
        content = stream.read(_LONGEST_DOCUMENT + 1) if path.stat().st_size <= _LONGEST_DOCUMENT else None
    if content is None or len(content) > _LONGEST_DOCUMENT:
        raise ValueError(f"{file} has more than {_LONGEST_DOCUMENT} bytes")
    return content


def complete_lines(
    directory: Path, file: str, *, largest: int, longest: int, most: int, nothing: str
) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file with their numbers, from 1.

    The last line is skipped if it has no line break at its end: the program died while it wrote this line.

    Args:
        largest: the highest size of the file in bytes.
        longest: the highest size of a line in bytes.
        most: the highest number of lines.
        nothing: what it means that the file is empty.

    Raises:
        RecordFault: the file is missing, empty or too large, or a line is too long.
    """
    try:
        with readable(directory, file) as path, path.open("rb") as lines:
            if (size := path.stat().st_size) > largest:
                raise RecordFault(f"{file} has {size} bytes, more than {largest}")
            if not size:
                raise RecordFault(f"{file} is empty: {nothing}")
            for number in range(1, most + 2):
                if not (line := lines.readline(longest + 1)):
                    return
                if number > most:
                    raise RecordFault(f"{file} has more than {most} lines")
                if len(line) > longest:
                    raise RecordFault(f"{file}:{number} has more than {longest} bytes", number)
                if line.endswith(b"\n"):
                    yield number, line
    except ValueError as error:
        raise error if isinstance(error, RecordFault) else RecordFault(str(error)) from None


def first_fault(error: ValidationError) -> str:
    """Return the first fault of data that a server or a target has written, with its place, as one line."""
    fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
    at = ".".join(map(str, fault["loc"]))
    return truncate(" ".join(clean(f"{at}: {without_kind(fault['msg'])}".removeprefix(": ")).split()))


def matching(directory: Path, glob: str) -> list[Path]:
    """Return the sorted files that match a glob. Omit broken links, and files that vanish during the search."""
    files = []
    with suppress(OSError):  # a folder has vanished, or a name is too long for the file system
        for path in directory.glob(glob):
            with suppress(OSError):
                files += [path] if path.is_file() else []
    return sorted(files)


def last_line(file: Path) -> str:
    """Return the last line of a log that may be growing, truncated; empty if the log has no line or cannot be read."""
    try:
        with os.fdopen(safe_files.open_regular(str(file)), "rb") as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - _TAIL_BYTES))
            lines = stream.read().decode("utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return truncate(next((line.strip() for line in reversed(lines) if line.strip()), ""))


def search(directory: Path, file: str, pattern: str) -> Iterator[LogMatch]:
    """Yield every match in every line of a file, in order, without reading the whole file into memory.

    A carriage return ends a line too, because progress bars use it. Bytes that are not UTF-8 are replaced. In a line of
    more than `PIECE` characters, a match of more than `LONGEST_MATCH` characters may be cut.

    Raises:
        ValueError: the file cannot be read.
    """
    with readable(directory, file) as path, path.open(encoding="utf-8", errors="replace") as log:
        yield from _matches(log, re.compile(pattern))


def _matches(log: TextIO, pattern: re.Pattern[str]) -> Iterator[LogMatch]:
    line, kept, start = 1, "", 0
    while (piece := log.readline(PIECE)) or kept:
        is_end = piece.endswith("\n") or len(piece) < PIECE
        window = kept + piece.removesuffix("\n")
        # A match that starts near the end of the window may continue in the next piece, so it is searched for again.
        settled = len(window) + 1 if is_end else len(window) - LONGEST_MATCH
        for match in pattern.finditer(window, start):
            if match.start() >= settled:
                break
            yield LogMatch(line, match)
            start = match.end()
        if is_end:
            line, kept, start = line + 1, "", 0
        else:  # keep some text before the start, for `^`, `\b` and lookbehinds
            cut = settled - LONGEST_MATCH
            kept, start = window[cut:], max(start, settled) - cut
