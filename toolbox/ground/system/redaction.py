"""Masks secret values in every text that is written or shown, and escapes what a terminal would obey in a result."""

from __future__ import annotations

import errno
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from toolbox.ground.kit import masking
from toolbox.ground.kit.masking import Masker
from toolbox.ground.model.foreign_text import printable, printable_json
from toolbox.ground.model.secrets import MASK
from toolbox.ground.system import environ, filesystem

_CHUNK_BYTES: Final = 1 << 20
_HEAD_BYTES: Final = 1 << 13
# Control characters that programs don't print, and U+FFFD, which replaces bytes that are not UTF-8.
_NOT_TEXT: Final = re.compile("[\x00-\x06\x0e-\x1a\x1c-\x1f\x7f\ufffd]")
_MAX_NOT_TEXT: Final = 0.1  # the largest share of such characters at the beginning of a text file


class Swept(NamedTuple):
    """The result of a sweep.

    Args:
        binary: the files that contain a secret, and that masking would break because they are not text.
        faults: one message for each file that could not be searched.
    """

    masked: list[Path]
    binary: list[Path]
    faults: list[str]


class Redactor:
    """Masks the secret values that the process knows. Any thread may add values."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._secrets: frozenset[str] = frozenset()
        self._values: tuple[str, ...] = ()

    def add(self, values: Iterable[str]) -> None:
        """Add secret values. From then on, the values and their encoded forms, such as base64, are masked."""
        with self._lock:
            new = {*values} - self._secrets
            forms = {form for value in new for form in masking.forms(value)}
            self._values = tuple(sorted({*self._values, *forms}, key=len, reverse=True))
            self._secrets |= new

    def values(self) -> tuple[str, ...]:
        """Return all strings that are masked, the longest string first."""
        return self._values

    def secrets(self) -> tuple[str, ...]:
        """Return the secret values as they were added, for another program that masks them."""
        return tuple(self._secrets)

    def __call__(self, text: str) -> str:
        """Return the text with the secret values masked."""
        for value in self._values:
            if value in text:
                text = text.replace(value, MASK)
        return text

    def redact_nested(self, value: Any, *, keep_keys: bool = False) -> Any:
        """Return a value with the secrets masked in its strings, including those in mappings, lists and tuples.

        Args:
            keep_keys: don't mask the keys of mappings, because programs look them up.
        """
        if not self._values:
            return value
        mask = partial(self.redact_nested, keep_keys=keep_keys)
        if type(value) is str:
            return self(value)
        if isinstance(value, Mapping):
            return {key if keep_keys else mask(key): mask(item) for key, item in value.items()}
        return type(value)(map(mask, value)) if isinstance(value, list | tuple) else value

    def sweep(self, directory: Path, *, skip: Callable[[Path], bool] = lambda _: False) -> Swept:
        """Mask the secret values in the files below a directory. The files are read in pieces.

        Args:
            skip: returns whether to leave a file unchanged.
        """
        patterns = [value.encode("utf-8", "surrogateescape") for value in self._values]
        swept = Swept([], [], [])
        for file in sorted(directory.rglob("*")) if patterns else ():
            try:
                if not file.is_symlink() and file.is_file() and not skip(file) and _holds_any(file, patterns):
                    if _is_binary(file):
                        swept.binary.append(file)
                    else:
                        filesystem.write_pieces(file, _masked(file, patterns))
                        swept.masked.append(file)
            except FileNotFoundError:
                continue  # a process that still runs has removed the file
            except OSError as error:
                swept.faults.append(f"{file} could not be searched for secrets: {error}")
        return swept


def _pieces(file: Path) -> Iterator[bytes]:
    """Yield the content of a file in pieces. Each hole of a sparse file is replaced by one NUL byte."""
    with file.open("rb", buffering=0) as stream:
        end, offset = os.fstat(stream.fileno()).st_size, 0
        while offset < end:
            start, stop = _next_data(stream.fileno(), offset, end)
            if start > offset:
                yield b"\0"
            stream.seek(start)
            while start < stop and (piece := stream.read(min(_CHUNK_BYTES, stop - start))):
                start += len(piece)
                yield piece
            if start < stop:
                return  # the file has become shorter
            offset = stop


def _next_data(descriptor: int, offset: int, end: int) -> tuple[int, int]:
    """Return where the next data starts and ends: the data at `offset`, or after a hole at `offset`."""
    try:
        start = os.lseek(descriptor, offset, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:  # only a hole follows
            return end, end
        return offset, end  # the file system does not support SEEK_DATA
    return start, min(end, os.lseek(descriptor, start, os.SEEK_HOLE))


def _holds_any(file: Path, patterns: list[bytes]) -> bool:
    """Return whether a file contains one of the patterns, also across the border of two pieces."""
    overlap = max(map(len, patterns)) - 1
    tail = b""
    for piece in _pieces(file):
        window = tail + piece
        if any(pattern in window for pattern in patterns):
            return True
        tail = window[-overlap:] if overlap else b""
    return False


def _is_binary(file: Path) -> bool:
    """Return whether a file is binary: it has a NUL byte, or over a tenth of its beginning is not printable.

    A file named `*.log` is never binary.
    """
    if file.suffix == ".log":
        return False
    for index, piece in enumerate(_pieces(file)):
        head = piece[:_HEAD_BYTES].decode("utf-8", errors="replace")
        if b"\0" in piece or (not index and len(_NOT_TEXT.findall(head)) > _MAX_NOT_TEXT * len(head)):
            return True
    return False


def _masked(file: Path, patterns: list[bytes]) -> Iterator[bytes]:
    masker = Masker(patterns)
    for piece in _pieces(file):
        yield masker.feed(piece)
    yield masker.flush()


class _Process:
    """The redactor of this process. A context variable would be unset in threads that a project starts."""

    redactor = Redactor()


def current() -> Redactor:
    """Return the redactor of this process, which is the same in all threads."""
    return _Process.redactor


def use(redactor: Redactor) -> None:
    """Set the redactor of the process."""
    _Process.redactor = redactor


def escaped(text: str, *, is_json: bool) -> str:
    """Escape terminal control sequences and CI workflow commands in a result, unless a program reads the result."""
    if is_json:
        return printable_json(text)
    return printable(text) if sys.stdout.isatty() or environ.is_workflow() else text
