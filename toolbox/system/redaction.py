"""Takes secret values out of every text that is written or shown.

The type `Secret` keeps a value from being printed by mistake; this is the second wall, for what programs print.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from contextvars import ContextVar
from pathlib import Path
from typing import Final

from toolbox.model.secrets import MASK
from toolbox.system import files

# A value of one or two characters is in every text; to mask it would hide the text and keep no secret.
_SHORTEST: Final = 3


class Redactor:
    """The secret values of this process. Values are added as they become known, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: tuple[str, ...] = ()

    def add(self, values: Iterable[str]) -> None:
        """Learn secret values, with the forms that they take in JSON and the single lines of a longer one."""
        forms = {form for value in values for form in _forms(value) if len(form) >= _SHORTEST}
        with self._lock:
            self._values = tuple(sorted({*self._values, *forms}, key=len, reverse=True))

    def __call__(self, text: str) -> str:
        """Return the text without the secret values."""
        for value in self._values:
            if value in text:
                text = text.replace(value, MASK)
        return text

    def sweep(self, directory: Path) -> list[Path]:
        """Take the secret values out of the files below a directory, and return the files that held one."""
        patterns = [value.encode() for value in self._values]
        swept = []
        for file in sorted(directory.rglob("*")) if patterns else ():
            if not file.is_file() or file.is_symlink():
                continue
            content = file.read_bytes()
            if any(pattern in content for pattern in patterns):
                for pattern in patterns:
                    content = content.replace(pattern, MASK.encode())
                files.write_bytes(file, content)
                swept.append(file)
        return swept


def _forms(value: str) -> Iterable[str]:
    yield value
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield repr(value)[1:-1]
    # A pseudo-terminal ends lines with \r\n, and a program may print one line of a key at a time.
    yield from (line.strip() for line in value.splitlines() if len(line.strip()) >= 8)  # noqa: PLR2004


_process: ContextVar[Redactor] = ContextVar("redactor")


def current() -> Redactor:
    """Return the redactor of this process, which the command line sets up; a new one where there is none."""
    redactor = _process.get(None)
    if redactor is None:
        redactor = Redactor()
        _process.set(redactor)
    return redactor


def use(redactor: Redactor) -> None:
    """Make this the redactor of the process."""
    _process.set(redactor)
