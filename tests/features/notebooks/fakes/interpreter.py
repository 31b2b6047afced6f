"""A program that behaves as a Python interpreter with venv and pip, so that tests make environments in milliseconds."""

from __future__ import annotations

from pathlib import Path

_SCRIPT = """#!/bin/sh
case "$2" in
-c) echo '["CPython", "3.11", "linux", "/fake"]' ;;
-m)
    {ensurepip}
    ;;
venv)
    mkdir -p "$3/bin" "$3/lib/python3.11/site-packages"
    cp "$0" "$3/bin/python"
    echo "$3" >> "{made}"
    {venv}
    ;;
pip)
    packages="$(dirname "$0")/../lib/python3.11/site-packages"
    {pip}
    mkdir "$packages/ipykernel-1.dist-info"
    ;;
esac
"""


class FakeInterpreter:
    """Writes the program to a directory.

    Args:
        ensurepip: shell code that is executed in place of ensurepip.
        venv: shell code that is executed after an environment was made.
        pip: shell code that is executed before the package ipykernel is installed. `$packages` is the directory of
            the packages.
    """

    def __init__(self, directory: Path, *, ensurepip: str = ":", venv: str = ":", pip: str = ":") -> None:
        self._made = directory / "made"
        self.path = str(directory / "python")
        Path(self.path).write_text(
            _SCRIPT.format(made=self._made, ensurepip=ensurepip, venv=venv, pip=pip), encoding="utf-8"
        )
        Path(self.path).chmod(0o755)

    @property
    def made(self) -> list[str]:
        """The names of the environments that were made, one for each time."""
        return [Path(line).name for line in self._made.read_text().splitlines()] if self._made.exists() else []
