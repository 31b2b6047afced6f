"""Takes secret values out of every text that is written or shown.

The type `Secret` keeps a value from being printed by mistake; this is the second wall, for what programs print.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from toolbox.model.secrets import MASK
from toolbox.system import files

# A value of one or two characters is in every text; to mask it would hide the text and keep no secret.
_SHORTEST: Final = 3
_SHORTEST_LINE: Final = 6
_CHUNK_BYTES: Final = 1 << 20


class Redactor:
    """The secret values of this process. Values are added as they become known, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: tuple[str, ...] = ()

    def add(self, values: Iterable[str]) -> None:
        """Learn secret values: as JSON, YAML and a shell write them, and by the lines of a longer one."""
        forms = {form for value in values for form in _forms(value) if len(form) >= _SHORTEST}
        with self._lock:
            self._values = tuple(sorted({*self._values, *forms}, key=len, reverse=True))

    def values(self) -> tuple[str, ...]:
        """Return all the texts that are masked, the longest first, for who masks them elsewhere."""
        return self._values

    def __call__(self, text: str) -> str:
        """Return the text without the secret values."""
        for value in self._values:
            if value in text:
                text = text.replace(value, MASK)
        return text

    def texts(self, value: Any, *, keep_keys: bool = False) -> Any:
        """Return a value without the secret values in its texts. Numbers and words of ours (enums) stay as they are.

        Args:
            keep_keys: leave the keys of mappings as they are: they are the names of fields, which a program looks up.
        """
        if not self._values:
            return value
        mask = partial(self.texts, keep_keys=keep_keys)
        if type(value) is str:
            return self(value)
        if isinstance(value, Mapping):
            return {key if keep_keys else mask(key): mask(item) for key, item in value.items()}
        return type(value)(map(mask, value)) if isinstance(value, list | tuple) else value

    def sweep(self, directory: Path) -> tuple[list[Path], list[str]]:
        """Take the secret values out of the files below a directory.

        Returns:
            the files that held one, and what could not be looked into.
        """
        patterns = [value.encode() for value in self._values]
        swept: list[Path] = []
        faults: list[str] = []
        for file in sorted(directory.rglob("*")) if patterns else ():
            try:
                if not file.is_symlink() and file.is_file() and _holds_any(file, patterns):
                    _mask(file, patterns)
                    swept.append(file)
            except FileNotFoundError:
                continue  # what it belongs to goes on, and has removed it
            except OSError as error:
                faults.append(f"{file} could not be searched for secrets: {error}")
        return swept, faults


def _holds_any(file: Path, patterns: list[bytes]) -> bool:
    """Read a file in pieces, which overlap so that a value on the border is seen."""
    overlap = max(map(len, patterns)) - 1
    tail = b""
    with file.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            piece = tail + chunk
            if any(pattern in piece for pattern in patterns):
                return True
            tail = piece[-overlap:] if overlap else b""
    return False


def _mask(file: Path, patterns: list[bytes]) -> None:
    content = file.read_bytes()
    for pattern in patterns:
        content = content.replace(pattern, MASK.encode())
    files.write_bytes(file, content)


def _forms(value: str) -> Iterable[str]:
    # A pseudo-terminal ends lines with \r\n, Ansible shows the lines of an output one by one, and a program may
    # print one line of a key at a time. A short line (a brace) is in every text.
    # Who decodes a key that is JSON, or a shell's `echo`, makes line breaks of its `\\n`.
    lines = (line.strip() for text in (value, value.replace("\\n", "\n")) for line in text.splitlines())
    for part in {value, value.strip(), *(line for line in lines if len(line) >= _SHORTEST_LINE)}:
        # Twice: Ansible shows as JSON what a program has printed as JSON.
        once = [part, *_escaped(part)]
        yield from once
        yield from (twice for form in once for twice in _escaped(form))
        yield part.replace("'", "'\"'\"'")  # a shell's quotes
        yield part.replace("'", "''")  # YAML's


def _escaped(text: str) -> Iterable[str]:
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    yield repr(text)[1:-1]


class _Process:
    """Holds the redactor of this process. A context variable would be unset in threads that a project starts."""

    redactor = Redactor()


def current() -> Redactor:
    """Return the redactor of this process, in each of its threads. The command line sets it up."""
    return _Process.redactor


def use(redactor: Redactor) -> None:
    """Make this the redactor of the process."""
    _Process.redactor = redactor
