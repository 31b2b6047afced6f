"""Prints the logs of the workloads of a run, and follows the logs while the workloads run.

The standard output of a workload goes to the standard output of this process, and its standard error to the standard
error. `commands/project.py` calls this module, which only reads the journal and the logs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TextIO

from toolbox.model import patterns
from toolbox.model.errors import UsageError
from toolbox.model.foreign_text import clean, printable
from toolbox.model.nearest import did_you_mean
from toolbox.runs import journal, run_reader
from toolbox.runs.layout import RunDirectory
from toolbox.runs.run_state import RunState, State, StepState
from toolbox.system import environ, filesystem

_POLL_SECONDS: Final = 0.2
_PAUSES: Final = 4
_PIECE_BYTES: Final = 1 << 16


@dataclass(slots=True)
class _Log:
    """One log of an attempt, and how much of it has been shown.

    Args:
        prefix: a text before each line.
        partial: the beginning of a line that is not complete yet.
    """

    file: Path
    output: TextIO
    prefix: str = ""
    offset: int = 0
    partial: bytes = b""

    def show_new(self) -> None:
        """Show the lines that have come since the last call."""
        try:
            with self.file.open("rb") as stream:
                stream.seek(self.offset)
                while piece := stream.read(_PIECE_BYTES):
                    self.offset += len(piece)
                    self._take(piece)
        except FileNotFoundError:
            return

    def show_rest(self) -> None:
        """Show the text after the last line end."""
        if self.partial:
            self._write(self.partial + (b"\n" if self.prefix else b""))
            self.partial = b""

    def _take(self, piece: bytes) -> None:
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
    """The logs of the cells of one run: of their latest attempts, and of later attempts.

    Args:
        wanted: the name or the id of a cell, or a pattern; None for all cells.
    """

    directory: Path
    wanted: str | None = None
    stdout: TextIO = field(default_factory=lambda: sys.stdout)
    stderr: TextIO = field(default_factory=lambda: sys.stderr)
    _logs: dict[tuple[str, int], list[_Log]] = field(default_factory=dict)

    def show(self) -> None:
        """Show the logs as they are now.

        Raises:
            UsageError: the directory is not that of a run, or no such cell has begun.
        """
        run = run_reader.read(self.directory)
        cells = self._cells(run)
        if not cells:
            raise UsageError(self._nothing(run))
        self._open(cells, is_one=len(cells) == 1)
        self._advance(is_end=True)
        if not any(log.offset for logs in self._logs.values() for log in logs):
            self._say("nothing has been printed")

    def follow(self, sleep: Callable[[float], None] = time.sleep) -> None:
        """Show the logs, and new lines until the cell or the run has ended.

        Raises:
            UsageError: the directory is not that of a run, or it has ended and no such cell has begun.
        """
        seen, is_over = -1, False
        while not is_over:
            began = time.monotonic()
            size = filesystem.size(RunDirectory(self.directory).journal)
            is_alive = journal.is_locked(self.directory)
            if size != seen or not is_alive:
                run = run_reader.read(self.directory)
                cells, seen = self._cells(run), size
                is_over = run.state is not State.RUNNING or self._has_ended(cells)
                if is_over and not cells:
                    raise UsageError(self._nothing(run))
                self._open(cells, is_one=self._is_one_name(cells))
            self._advance(is_end=is_over)
            if not is_over:
                # The journal of a large run takes a while to read, and is then read less often.
                sleep(max(_POLL_SECONDS, _PAUSES * (time.monotonic() - began)))
        if run.state is State.DEAD:
            self._say("the process of the run is gone: its workloads may be running, and are not followed")

    def _cells(self, run: RunState) -> list[StepState]:
        cells = [cell for cell in run.cells if cell.attempts]
        if self.wanted is None:
            return cells
        return patterns.matching(self.wanted, cells, lambda cell: (cell.name, cell.identity))

    def _is_one_name(self, cells: Sequence[StepState]) -> bool:
        return self.wanted is not None and [self.wanted in (cell.name, cell.identity) for cell in cells] == [True]

    def _has_ended(self, cells: Sequence[StepState]) -> bool:
        return self._is_one_name(cells) and cells[0].verdict is not None

    def _open(self, cells: Iterable[StepState], *, is_one: bool) -> None:
        for cell in cells:
            number = cell.attempts[-1].attempt
            if (cell.step, number) in self._logs:
                continue
            if any(step == cell.step for step, _ in self._logs):
                self._advance(is_end=True)
                self._say(f"{clean(cell.name)}: attempt {number}")
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

    def _nothing(self, run: RunState) -> str:
        begun = [cell.name for cell in run.cells if cell.attempts]
        if not begun:
            return f"no cell of the run {run.run} has begun: the logs of its other steps are in {run.directory}"
        return f"no cell `{self.wanted}` of the run {run.run} has begun: {did_you_mean(self.wanted or '', begun)}"

    def _say(self, text: str) -> None:
        print(printable(text), file=self.stderr, flush=True)
