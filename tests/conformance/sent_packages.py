"""A package that is sent to targets, as its test sees it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import ModuleType


@dataclass(frozen=True, slots=True)
class SentPackage:
    """A package that is sent to targets.

    Args:
        python: the oldest Python that executes the package.
        libraries: the libraries that the package may import.
        is_program: whether the package is a program with a file of settings as its argument.
        older_modules: the modules that an even older Python, 3.8, executes.
    """

    module: ModuleType
    python: tuple[int, int]
    libraries: frozenset[str] = frozenset()
    is_program: bool = False
    older_modules: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return self.module.__name__

    @property
    def folder(self) -> Path:
        """The folder of the package."""
        return Path(str(self.module.__file__)).parent
