"""The log of the installation of an environment: limited in size, and without the credentials of URLs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final

from .failure_texts import one_line
from .pip_failures import masked

_LIMIT: Final = 2 * 2**20
_TAIL: Final = 400
_LINE: Final = 4000
_STEPS: Final = ("Collecting ", "Downloading ", "Building ", "Installing ", "Successfully ")


class EnvironmentLog:
    """Writes the output of venv and pip to a file, and prints the steps of pip.

    Args:
        path: the file. Output is appended to it.
        say: prints a line for people.
    """

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        self._path = path
        self._say = say
        self._rest = b""
        self.tail: deque[str] = deque(maxlen=_TAIL)

    def write(self, data: bytes) -> None:
        """Append a piece of output, whose last line may be incomplete."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LINE:
            lines, self._rest = [*lines, self._rest], b""
        with self._path.open("ab") as file:
            for line in lines:
                self._write_line(file, line)

    def end(self) -> None:
        """Write the last line, if it is incomplete."""
        if self._rest:
            self.write(b"\n")

    def line(self, text: str) -> None:
        """Write a line of the worker, and print it."""
        self.write(f"{text}\n".encode())
        self._say(masked(text))

    def _write_line(self, file: IO[bytes], line: bytes) -> None:
        text = masked(line[:_LINE].decode("utf-8", "replace")).rstrip()
        self.tail.append(text)
        if file.tell() < _LIMIT:
            file.write(f"{text}\n".encode())
            if file.tell() >= _LIMIT:
                file.write(b"[the rest of the log is omitted]\n")
        if text.lstrip().startswith(_STEPS):
            self._say(one_line(text, 200))
