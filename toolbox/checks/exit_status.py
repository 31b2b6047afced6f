"""Checks the exit status of the workload."""

from __future__ import annotations

import re
import signal
from typing import Final

from pydantic import BaseModel, ConfigDict

from toolbox.model.evidence import Evidence, Judgement
from toolbox.model.text import abbreviated
from toolbox.runs.evidence_files import RelativeFile, last_line
from toolbox.runs.layout import AttemptDirectory

_ERRORS: Final = AttemptDirectory.stderr
_SIGNALLED: Final = 128


class Check(BaseModel):
    """The file that holds the status, and the expected status."""

    model_config = ConfigDict(extra="forbid")

    file: RelativeFile = AttemptDirectory.exit_code
    expected: int = 0

    def judge(self, evidence: Evidence) -> Judgement:
        """Compare the recorded status with the expected one."""
        try:
            text = (evidence.directory / self.file).read_text(encoding="utf-8", errors="replace").strip()
        except FileNotFoundError:
            return Judgement(False, f"{self.file} does not exist: the workload did not end by itself")
        except OSError as error:
            return Judgement(False, f"{self.file} cannot be read: {error.strerror}")
        if not re.fullmatch(r"-?\d{1,10}", text):
            return Judgement(False, f"{self.file} holds {abbreviated(text, longest=40)}, an exit status was expected")
        message = f"exit status {text}{_signal(int(text))}, expected {self.expected}"
        if text == str(self.expected):
            return Judgement(True, message)
        said = last_line(evidence.directory / _ERRORS)
        return (
            Judgement(False, f"{message}; its last error: {said}", file=_ERRORS) if said else Judgement(False, message)
        )


def _signal(status: int) -> str:
    """Return the name of the signal that an exit status above 128 stands for in a shell."""
    try:
        return f" ({signal.Signals(status - _SIGNALLED).name})" if status > _SIGNALLED else ""
    except ValueError:
        return ""
