"""The executed notebook on disk. It is saved while its cells are executed, and each save replaces the file atomically.

The time of a save grows with the number of cells and outputs. If the notebook were saved before and after each cell,
the total time would grow with the square of the number of cells. So saves are limited.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import nbformat
from papermill.engines import NotebookExecutionManager

SAVE_SECONDS: Final = 1.0  # the shortest time from the end of a save to the next save
SAVE_SHARE: Final = 0.1  # the largest part of the time that saves may take


class CannotWriteError(OSError):
    """The executed notebook cannot be written, for example because the disk is full."""


class ExecutedNotebook(NotebookExecutionManager):  # type: ignore[misc]
    """Keeps the notebook that papermill executes.

    Args:
        before_save: completes the outputs; called before each save.
        clock: returns a time in seconds.
    """

    def __init__(
        self,
        notebook: nbformat.NotebookNode,
        path: Path,
        before_save: Callable[[], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._clock = clock
        self._before_save = before_save
        self._due = -math.inf
        self._is_pending = False
        super().__init__(notebook, str(path), progress_bar=False)

    def notebook_complete(self, **kwargs: Any) -> None:
        """Complete the metadata, and save the notebook, even if the previous save is recent.

        Raises:
            CannotWriteError: the file cannot be written.
        """
        self._due = -math.inf
        super().notebook_complete(**kwargs)

    def autosave_cell(self) -> None:
        """Save the notebook after a message of the kernel, now or later. See `save`."""
        self.save()

    def save(self, **_: Any) -> None:
        """Replace the file. If the previous save is too recent, `save_pending` replaces the file later.

        Raises:
            CannotWriteError: the file cannot be written.
        """
        self._is_pending = True
        self.save_pending()

    def save_pending(self) -> None:
        """Replace the file, if a save is pending and due.

        Raises:
            CannotWriteError: the file cannot be written.
        """
        begin = self._clock()
        if self._is_pending and begin >= self._due:
            self._write()
            self._is_pending = False
            end = self._clock()
            self._due = end + max(SAVE_SECONDS, (end - begin) * (1 / SAVE_SHARE - 1))

    def _write(self) -> None:
        self._before_save()
        text = nbformat.writes(self.nb)
        unfinished = self._path.with_name(f".{self._path.name}.unfinished")
        try:
            with unfinished.open("wb") as file:
                file.write(text.encode(errors="replace"))  # a kernel can send half of a UTF-16 pair
            os.replace(unfinished, self._path)  # noqa: PTH105
        except OSError as error:
            raise CannotWriteError(error.errno, f"{self._path.name} cannot be written: {error.strerror}") from error
