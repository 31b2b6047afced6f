"""Searches the files of a run for secrets before the run is exported.

A file of any size is read once, in blocks, and its SHA-256 is computed from the same blocks, so that exactly the
searched content is exported. Consecutive blocks overlap, so that a secret across their border is found. The files are
bytes: text, binary files and tar archives are searched alike, and text in UTF-16 too. Compressed files are not opened.

A finding names the file, the line and the kind of secret, and never the secret.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from toolbox.ground.kit import masking, safe_files
from toolbox.ground.model import secret_formats

IN_USE: Final = "a secret in use"
_BLOCK_BYTES: Final = 1 << 20
# A shorter form occurs in binary files by chance.
_SHORTEST_FORM: Final = 6
_MAX_FINDINGS: Final = 1_000  # in a file
_ZEROS: Final = bytes(_SHORTEST_FORM)


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """A secret in a file.

    Args:
        file: the file, relative to the run directory; empty if the name itself contains a secret in use.
        line: the number of the line, from 1.
        kind: what the secret is, such as `a token of GitHub`.
    """

    file: str
    line: int
    kind: str

    def __str__(self) -> str:
        """Return `file:line: kind`."""
        return f"{self.file}:{self.line}: {self.kind}" if self.file else self.kind


@dataclass(frozen=True, slots=True)
class SearchedFile:
    """A file that was read completely.

    Args:
        name: the file, relative to the run directory.
        sha256: the hexadecimal digest of the content.
    """

    name: str
    size: int
    sha256: str
    findings: Sequence[Finding] = ()


@dataclass(slots=True)
class _Search:
    """The state of the search in one file."""

    forms: Sequence[bytes]
    overlap: int
    tail: bytes = b""
    line: int = 1  # the number of the line at the beginning of the tail
    found: set[tuple[int, str]] = field(default_factory=set)
    has_secret_in_use: bool = False

    def add(self, block: bytes) -> None:
        """Search the next block."""
        window = self.tail + block
        for offset, kind in _secrets(window, self.forms, secret_formats.BEFORE if self.tail else 0):
            if len(self.found) < _MAX_FINDINGS or (kind == IN_USE and not self.has_secret_in_use):
                self.has_secret_in_use |= kind == IN_USE
                self.found.add((self.line + window.count(b"\n", 0, offset), kind))
        self.tail = window[-self.overlap :]
        self.line += window.count(b"\n", 0, len(window) - len(self.tail))


class Scanner:
    """Searches files for the values of secrets in use, and for tokens of common formats.

    Args:
        values: the secret values in use. Their encoded forms, such as base64, are searched too.
    """

    def __init__(self, values: Sequence[str]) -> None:
        forms = [form for form in masking.patterns(values) if len(form) >= _SHORTEST_FORM]
        # A form that contains another form is found with the other form.
        self._forms = [form for form in forms if not any(other in form for other in forms if other != form)]
        # In UTF-16, a character has two bytes.
        self._overlap = 2 * (max([secret_formats.LONGEST, *map(len, self._forms)]) + secret_formats.BEFORE)

    def search(self, root: Path, name: str) -> SearchedFile:
        """Read a file, and return its digest and the secrets in it.

        Raises:
            OSError: the file cannot be read.
        """
        digest, size, search = hashlib.sha256(), 0, _Search(self._forms, self._overlap)
        for block in blocks(root, name):
            digest.update(block)
            size += len(block)
            search.add(block)
        if any(form in os.fsencode(name) for form in self._forms):
            return SearchedFile(name, size, digest.hexdigest(), [Finding("", 0, f"{IN_USE} in the name of a file")])
        findings = [Finding(name, line, kind) for line, kind in sorted(search.found)]
        return SearchedFile(name, size, digest.hexdigest(), findings)


def blocks(root: Path, name: str) -> Iterator[bytes]:
    """Yield the content of a regular file in blocks. Links are not followed."""
    with os.fdopen(safe_files.open_below(str(root), name), "rb", buffering=0) as stream:
        while block := stream.read(_BLOCK_BYTES):
            yield block


def _secrets(window: bytes, forms: Sequence[bytes], start: int) -> Iterator[tuple[int, str]]:
    """Yield the offset and the kind of the secrets in a part of a file, also of those that are written in UTF-16."""
    yield from _secrets_in(window, forms, start)
    # Text in UTF-16, in either order of the bytes, has a zero as each second byte if its characters are those of ASCII.
    for first in (0, 1) if b"\0" in window else ():
        if _ZEROS in window[1 - first :: 2]:
            for offset, kind in _secrets_in(window[first::2], forms, start):
                yield first + 2 * offset, kind


def _secrets_in(window: bytes, forms: Sequence[bytes], start: int) -> Iterator[tuple[int, str]]:
    for form in forms:
        offset = -1
        while (offset := window.find(form, offset + 1)) >= 0:
            yield offset, IN_USE
            if (offset := window.find(b"\n", offset)) < 0:
                break
    yield from secret_formats.find_tokens(window.decode("latin-1"), start)
