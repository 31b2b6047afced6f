"""The output of a program that a step runs: it is shown, and written to `run.log` in the directory of the step."""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import Final

from toolbox.ground.model.events import Note
from toolbox.ground.system import filesystem
from toolbox.records.runs.layout import StepDirectory
from toolbox.records.runs.steps import Step

log = logging.getLogger(__name__)

ERROR_LINES: Final = 4


class ProgramOutput:
    """Shows the output of a program, writes it to `run.log`, and keeps the last lines of standard error for a message.

    Two threads call it, one for each stream of the program.
    """

    def __init__(self, step: Step) -> None:
        self._step = step
        self._file = StepDirectory(step.directory).program_log
        self._lock = threading.Lock()
        self._error_lines: deque[str] = deque(maxlen=ERROR_LINES)
        self._has_warned = False

    @property
    def error_lines(self) -> list[str]:
        """The last lines of standard error."""
        return list(self._error_lines)

    def write(self, line: str) -> None:
        """Show a line, and append it to `run.log`."""
        line = self._step.recorder.redactor(line)
        with self._lock:
            self._append_to_log(line)
        self._step.recorder.record(Note(self._step.identity, line))

    def write_error(self, line: str) -> None:
        """Do the same as `write` with a line of standard error, and keep the line for `error_lines`."""
        self._error_lines.append(line)
        self.write(line)

    def _append_to_log(self, line: str) -> None:
        try:
            filesystem.append_text(self._file, f"{line}\n")
        except OSError as error:  # the disk may be full, and a program that cleans up matters more than its log
            if not self._has_warned:
                log.warning("%s cannot be written: %s", self._file, error)
            self._has_warned = True
