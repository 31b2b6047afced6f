"""The executed notebook on disk. It is saved before and after each cell, and each save replaces the file at once."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
from papermill.engines import NotebookExecutionManager

AUTOSAVE_SECONDS = 5


class CannotWriteError(OSError):
    """The executed notebook cannot be written, for example because the disk is full."""


class ExecutedNotebook(NotebookExecutionManager):  # type: ignore[misc]
    """Keeps the notebook that papermill executes.

    Args:
        before_save: called before each save; completes the outputs.
    """

    def __init__(self, notebook: nbformat.NotebookNode, path: Path, before_save: Callable[[], object]) -> None:
        self._path = path
        self._before_save = before_save
        super().__init__(notebook, str(path), progress_bar=False, autosave_cell_every=AUTOSAVE_SECONDS)

    def save(self, **_: Any) -> None:
        """Replace the file.

        Raises:
            CannotWriteError: the file cannot be written.
        """
        self._before_save()
        text = nbformat.writes(self.nb)
        unfinished = self._path.with_name(f".{self._path.name}.unfinished")
        try:
            with unfinished.open("wb") as file:
                file.write(text.encode(errors="replace"))  # a kernel can send half of a UTF-16 pair
            os.replace(unfinished, self._path)  # noqa: PTH105
        except OSError as error:
            raise CannotWriteError(error.errno, f"{self._path.name} cannot be written: {error.strerror}") from error
        self.last_save_time = self.now()
