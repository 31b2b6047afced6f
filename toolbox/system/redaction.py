"""Masks secret values in every text that is written or shown.

The type `Secret` keeps values from being printed by mistake. This module masks them in the output of programs.
"""

from __future__ import annotations

import errno
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from toolbox.agent import masking
from toolbox.agent.masking import Masker
from toolbox.model.secrets import MASK
from toolbox.system import filesystem

_CHUNK_BYTES: Final = 1 << 20
_HEAD_BYTES: Final = 1 << 13
# Control characters that no terminal program prints, and bytes that are not UTF-8. A log may contain a few of both.
_NOT_TEXT: Final = re.compile("[\x00-\x06\x0e-\x1a\x1c-\x1f\x7f\ufffd]")
_MOST_NOT_TEXT: Final = 0.1


class Swept(NamedTuple):
    """The result of a sweep.

    Args:
        masked: the files in which secrets were masked.
        binary: the files that contain a secret and are not text: masking would break them.
        faults: why files could not be searched.
    """

    masked: list[Path]
    binary: list[Path]
    faults: list[str]


class Redactor:
    """The secret values of this process. Values are added as they become known, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._secrets: frozenset[str] = frozenset()
        self._values: tuple[str, ...] = ()

    def add(self, values: Iterable[str]) -> None:
        """Add secret values, in every form of `toolbox.agent.masking`."""
        with self._lock:
            new = {*values} - self._secrets
            forms = {form for value in new for form in masking.forms(value)}
            self._values = tuple(sorted({*self._values, *forms}, key=len, reverse=True))
            self._secrets |= new

    def values(self) -> tuple[str, ...]:
        """Return all texts that are masked, the longest first."""
        return self._values

    def secrets(self) -> tuple[str, ...]:
        """Return the secret values themselves, for another program that masks them."""
        return tuple(self._secrets)

    def __call__(self, text: str) -> str:
        """Return the text with the secret values masked."""
        for value in self._values:
            if value in text:
                text = text.replace(value, MASK)
        return text

    def redact_nested(self, value: Any, *, keep_keys: bool = False) -> Any:
        """Return a value with the secrets in its texts masked. Numbers and enums stay as they are.

        Args:
            keep_keys: leave the keys of mappings as they are: programs look them up.
        """
        if not self._values:
            return value
        mask = partial(self.redact_nested, keep_keys=keep_keys)
        if type(value) is str:
            return self(value)
        if isinstance(value, Mapping):
            return {key if keep_keys else mask(key): mask(item) for key, item in value.items()}
        return type(value)(map(mask, value)) if isinstance(value, list | tuple) else value

    def sweep(self, directory: Path, *, spare: Callable[[Path], bool] = lambda _: False) -> Swept:
        """Mask the secret values in the files below a directory. The files are read in pieces.

        Args:
            spare: returns whether to leave a file alone.
        """
        patterns = [value.encode("utf-8", "surrogateescape") for value in self._values]
        swept = Swept([], [], [])
        for file in sorted(directory.rglob("*")) if patterns else ():
            try:
                if not file.is_symlink() and file.is_file() and not spare(file) and _holds_any(file, patterns):
                    if _is_binary(file):
                        swept.binary.append(file)
                    else:
                        filesystem.write_pieces(file, _masked(file, patterns))
                        swept.masked.append(file)
            except FileNotFoundError:
                continue  # the file's process still runs, and has removed the file
            except OSError as error:
                swept.faults.append(f"{file} could not be searched for secrets: {error}")
        return swept


def _pieces(file: Path) -> Iterator[bytes]:
    """Yield the content of a file. A hole, which may be of any length, is replaced by one NUL byte."""
    with file.open("rb", buffering=0) as stream:
        end, place = os.fstat(stream.fileno()).st_size, 0
        while place < end:
            start, stop = _next_data(stream.fileno(), place, end)
            if start > place:
                yield b"\0"
            stream.seek(start)
            while start < stop and (piece := stream.read(min(_CHUNK_BYTES, stop - start))):
                start += len(piece)
                yield piece
            if start < stop:
                return  # the file has become shorter
            place = stop


def _next_data(descriptor: int, place: int, end: int) -> tuple[int, int]:
    """Return where the next data after an offset begins, and where that data ends."""
    try:
        start = os.lseek(descriptor, place, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:  # only a hole follows
            return end, end
        return place, end  # the file system does not support this
    return start, min(end, os.lseek(descriptor, start, os.SEEK_HOLE))


def _holds_any(file: Path, patterns: list[bytes]) -> bool:
    """Return whether a file has any of the patterns. Pieces of it overlap, to find values across borders."""
    overlap = max(map(len, patterns)) - 1
    tail = b""
    for piece in _pieces(file):
        window = tail + piece
        if any(pattern in window for pattern in patterns):
            return True
        tail = window[-overlap:] if overlap else b""
    return False


def _is_binary(file: Path) -> bool:
    """Return whether masking would break a file: it has a NUL byte, or does not begin with text.

    A log is always treated as text.
    """
    if file.suffix == ".log":
        return False
    for index, piece in enumerate(_pieces(file)):
        head = piece[:_HEAD_BYTES].decode("utf-8", errors="replace")
        if b"\0" in piece or (not index and len(_NOT_TEXT.findall(head)) > _MOST_NOT_TEXT * len(head)):
            return True
    return False


def _masked(file: Path, patterns: list[bytes]) -> Iterator[bytes]:
    masker = Masker(patterns)
    for piece in _pieces(file):
        yield masker.take(piece)
    yield masker.end()


class _Process:
    """Holds the redactor of this process. A context variable would be unset in threads that a project starts."""

    redactor = Redactor()


def current() -> Redactor:
    """Return the redactor of this process, which is the same in all threads. The command line sets it."""
    return _Process.redactor


def use(redactor: Redactor) -> None:
    """Set the redactor of the process."""
    _Process.redactor = redactor
