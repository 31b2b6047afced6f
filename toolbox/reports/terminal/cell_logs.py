"""Prints the logs of the workloads of a run, and follows the logs while the workloads run.

The standard output of a workload goes to the standard output of this process, and its standard error to the standard
error of this process. This module only reads the journal and the logs.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TextIO

from toolbox.ground.kit import safe_files
from toolbox.ground.model import patterns
from toolbox.ground.model.errors import UsageError
from toolbox.ground.model.foreign_text import clean, printable
from toolbox.ground.model.nearest import did_you_mean
from toolbox.ground.system import environ, filesystem
from toolbox.records.runs import journal, run_reader
from toolbox.records.runs.layout import RunDirectory
from toolbox.records.runs.run_state import RunState, State, StepState

log = logging.getLogger(__name__)

_POLL_SECONDS: Final = 0.2
_PAUSE_FACTOR: Final = 4  # a pause takes at least this many times as long as reading the journal
_PIECE_BYTES: Final = 1 << 16


@dataclass(slots=True)
class _Log:
    """One log of an attempt.

    Args:
        prefix: the text before each line.
        offset: how many bytes of the log have been read.
        partial: the beginning of a line that is not complete yet.
        inode: the inode of the file that was shown last. On Kubernetes, the exact log finally replaces the live copy.
        is_unreadable: whether a warning has said that the file cannot be read, which the workload may have replaced.
    """

    file: Path
    output: TextIO
    prefix: str = ""
    offset: int = 0
    partial: bytes = b""
    inode: int = 0
    is_unreadable: bool = False

    def show_new(self) -> None:
        """Show the lines that are new since the last call; all lines if another file has replaced the log."""
        try:
            with os.fdopen(safe_files.open_regular(str(self.file)), "rb") as stream:
                if (inode := os.fstat(stream.fileno()).st_ino) != self.inode:
                    self.inode, self.offset, self.partial = inode, 0, b""
                stream.seek(self.offset)
                while piece := stream.read(_PIECE_BYTES):
                    self.offset += len(piece)
                    self._show_lines(piece)
        except OSError as error:
            if not isinstance(error, FileNotFoundError) and not self.is_unreadable:
                self.is_unreadable = True
                log.warning("%s cannot be read: %s", self.file, error.strerror)

    def show_rest(self) -> None:
        """Show the text after the last line break."""
        if self.partial:
            self._write(self.partial + (b"\n" if self.prefix else b""))
            self.partial = b""

    def _show_lines(self, piece: bytes) -> None:
        *lines, self.partial = (self.partial + piece).split(b"\n")
        for line in lines:
            self._write(line + b"\n")
        if len(self.partial) >= _PIECE_BYTES:
            self._write(self.partial)
            self.partial = b""

    def _write(self, content: bytes) -> None:
        if self.output.isatty() or environ.is_workflow():
            self.output.write(printable(self.prefix + content.decode("utf-8", errors="replace")))
        else:
            self.output.flush()
            self.output.buffer.write(filesystem.encode(self.prefix) + content)


@dataclass(slots=True)
class CellLogs:
    """The logs of the latest attempt of each cell of one run, and of attempts that start later.

    Args:
        pattern: the name or the id of a cell, or a pattern; None for all cells.
    """

    directory: Path
    pattern: str | None = None
    stdout: TextIO = field(default_factory=lambda: sys.stdout)
    stderr: TextIO = field(default_factory=lambda: sys.stderr)
    _logs: dict[tuple[str, int], list[_Log]] = field(default_factory=dict)

    def show(self) -> None:
        """Show the logs as they are now.

        Raises:
            UsageError: the directory is not a run directory, or no matching cell has begun.
        """
        run = run_reader.read(self.directory)
        cells = self._cells(run)
        if not cells:
            raise UsageError(self._none_begun(run))
        self._open(cells, is_one=len(cells) == 1)
        self._advance(is_end=True)
        if not any(log.offset for logs in self._logs.values() for log in logs):
            self._note("the workloads have printed nothing")

    def follow(self, sleep: Callable[[float], None] = time.sleep) -> None:
        """Show the logs, and new lines until the cell or the run has ended.

        Raises:
            UsageError: the directory is not a run directory, or the run has ended and no matching cell has begun.
        """
        read_size, is_over = -1, False
        while not is_over:
            began = time.monotonic()
            size = filesystem.size(RunDirectory(self.directory).journal)
            is_alive = journal.is_locked(self.directory)
            if size != read_size or not is_alive:
                run = run_reader.read(self.directory)
                cells, read_size = self._cells(run), size
                is_over = run.state is not State.RUNNING or self._has_ended(cells)
                if is_over and not cells:
                    raise UsageError(self._none_begun(run))
                self._open(cells, is_one=self._is_one_name(cells))
            self._advance(is_end=is_over)
            if not is_over:
                # The journal of a large run takes long to read, so it is read less often.
                sleep(max(_POLL_SECONDS, _PAUSE_FACTOR * (time.monotonic() - began)))
        if run.state is State.DEAD:
            self._note("the process of the run is gone: workloads may still be running, but are no longer followed")

    def _cells(self, run: RunState) -> list[StepState]:
        cells = [cell for cell in run.cells if cell.attempts]
        if self.pattern is None:
            return cells
        return patterns.matching(self.pattern, cells, lambda cell: (cell.name, cell.identity))

    def _is_one_name(self, cells: Sequence[StepState]) -> bool:
        """Return whether the pattern is the name or id of one cell, so that following can end with the cell."""
        return self.pattern is not None and [self.pattern in (cell.name, cell.identity) for cell in cells] == [True]

    def _has_ended(self, cells: Sequence[StepState]) -> bool:
        return self._is_one_name(cells) and cells[0].verdict is not None

    def _open(self, cells: Iterable[StepState], *, is_one: bool) -> None:
        for cell in cells:
            number = cell.attempts[-1].attempt
            if (cell.step, number) in self._logs:
                continue
            if any(step == cell.step for step, _ in self._logs):
                self._advance(is_end=True)
                self._note(f"{clean(cell.name)}: attempt {number}")
            prefix = "" if is_one else f"{clean(cell.name)} | "
            logs = RunDirectory(self.directory).attempt(cell.step, number).logs().values()
            outputs = zip(logs, (self.stdout, self.stderr), strict=True)
            self._logs[cell.step, number] = [_Log(file, output, prefix) for file, output in outputs]

    def _advance(self, *, is_end: bool) -> None:
        for logs in self._logs.values():
            for log in logs:
                log.show_new()
                if is_end:
                    log.show_rest()
                log.output.flush()

    def _none_begun(self, run: RunState) -> str:
        begun = [cell.name for cell in run.cells if cell.attempts]
        if not begun:
            return f"no cell of the run {run.run} has begun: the logs of other steps are in {run.directory}"
        hint = did_you_mean(self.pattern or "", begun, label="cells")
        return f"no cell `{self.pattern}` of the run {run.run} has begun: {hint}"

    def _note(self, text: str) -> None:
        print(printable(text), file=self.stderr, flush=True)
