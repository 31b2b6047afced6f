"""Checks the exit status of the workload."""

from __future__ import annotations

import re
import signal
from typing import Final, Self

from pydantic import BaseModel, ConfigDict, model_validator

from toolbox.ground.kit.exit_codes import SIGNALLED
from toolbox.ground.model.evidence import Evidence, Judgement
from toolbox.ground.model.text import abbreviated
from toolbox.ground.model.verdicts import Cause
from toolbox.records.runs.evidence_files import RelativeFile, last_line
from toolbox.records.runs.layout import AttemptDirectory

_ERRORS: Final = AttemptDirectory.stderr


class Check(BaseModel):
    """The file that contains the exit status, and the expected status.

    Args:
        infrastructure: the statuses with which the workload reports that it could not test the product, for example
            because a server did not answer.
        internal: the statuses with which the workload reports that the test itself is broken, not the product.
    """

    model_config = ConfigDict(extra="forbid")

    file: RelativeFile = AttemptDirectory.exit_code
    expected: int = 0
    infrastructure: tuple[int, ...] = ()
    internal: tuple[int, ...] = ()

    @model_validator(mode="after")
    def _have_one_cause(self) -> Self:
        if common := set(self.infrastructure) & set(self.internal):
            raise ValueError(f"the status {min(common)} is both in `infrastructure` and in `internal`")
        return self

    def judge(self, evidence: Evidence) -> Judgement:
        """Compare the recorded status with the expected status."""
        try:
            text = (evidence.directory / self.file).read_text(encoding="utf-8", errors="replace").strip()
        except FileNotFoundError:
            return Judgement(False, f"{self.file} does not exist: the workload did not end by itself")
        except OSError as error:
            return Judgement(False, f"{self.file} cannot be read: {error.strerror}")
        if not re.fullmatch(r"-?\d{1,10}", text):
            content = abbreviated(text, longest=40)
            return Judgement(False, f"{self.file} must contain an exit status, not {content}")
        message = f"exit status {text}{_signal(int(text))}, expected {self.expected}"
        if text == str(self.expected):
            return Judgement(True, message)
        cause = self._cause(int(text))
        last_error = last_line(evidence.directory / _ERRORS)
        if not last_error:
            return Judgement(False, message, cause=cause)
        message = f"{message}; the last line of stderr: {last_error}"
        return Judgement(False, message, file=_ERRORS, cause=cause)

    def _cause(self, status: int) -> Cause | None:
        if status in self.internal:
            return Cause.INTERNAL
        return Cause.INFRASTRUCTURE if status in self.infrastructure else None


def _signal(status: int) -> str:
    """Return the name of the signal that ended the workload, if the status is 128 plus the number of a signal."""
    try:
        return f" ({signal.Signals(status - SIGNALLED).name})" if status > SIGNALLED else ""
    except ValueError:
        return ""
