"""Judges whether an inference server became ready, and whether it ran until the worker ended it.

The worker on the target writes to `worker.json` when the server was ready and how it ended, and writes the output of
the server to `server.log`. A server that was never ready is an error of the infrastructure: no request was sent to it.
The evidence is the end of the server's log.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from toolbox.features.inference.client import worker_results
from toolbox.ground.model.evidence import Evidence, Judgement
from toolbox.ground.model.foreign_text import clean
from toolbox.ground.model.text import duration, truncate
from toolbox.ground.model.verdicts import Cause
from toolbox.records.runs.evidence_files import RelativeFile, read_document, readable

_LONGEST_FAULT: Final = 400
_LONGEST_LINE: Final = 4000
_TAIL_BYTES: Final = 1 << 16
_LARGEST_LOG: Final = 1 << 25  # in a larger log, lines are not counted


class _Server(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    ready_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None
    fault: str | None


class _Report(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    server: _Server


class Check(BaseModel):
    """The files of the worker.

    Args:
        file: the report of the worker.
        log: the output of the server.
    """

    model_config = ConfigDict(extra="forbid")

    file: RelativeFile = f"files/{worker_results.REPORT}"
    log: RelativeFile = f"files/{worker_results.SERVER_LOG}"

    def judge(self, evidence: Evidence) -> Judgement:
        """Read the report of the worker, and the end of the log if something is wrong."""
        try:
            server = self._report(evidence.directory).server
        except ValueError as error:
            return Judgement(False, str(error))
        seconds = server.ready_seconds
        if server.fault is None and seconds is not None:
            return Judgement(True, f"ready after {duration(seconds)}")
        if server.fault is None:  # the check `exit_status` says why
            return Judgement(False, "the worker ended before the server was ready")
        fault = truncate(" ".join(clean(server.fault).split()), _LONGEST_FAULT)
        line, number = _last_line(evidence.directory / self.log)
        message = f"{fault}\nthe last line of {self.log}: {line}" if line else fault
        cause = Cause.INFRASTRUCTURE if seconds is None else None
        return Judgement(False, message, self.log if number else "", number, cause=cause)

    def _report(self, directory: Path) -> _Report:
        with readable(directory, self.file) as path:
            content = read_document(path, self.file)
        try:
            return _Report.model_validate_json(content)
        except ValidationError:
            raise ValueError(f"{self.file} is not a report of the worker about its server") from None


def _last_line(log: Path) -> tuple[str, int | None]:
    """Return the last line of a log that is not empty, truncated, and its number; None if it is not known."""
    try:
        with readable(log.parent, log.name) as path, path.open("rb") as stream:
            size = path.stat().st_size
            is_whole = size <= _LARGEST_LOG
            stream.seek(0 if is_whole else size - _TAIL_BYTES)
            content = stream.read(_LARGEST_LOG)
    except ValueError:
        return "", None
    content = content.rstrip()
    line = content[content.rfind(b"\n") + 1 :][:_LONGEST_LINE].decode(errors="replace")
    return truncate(clean(line).strip(), _LONGEST_FAULT), content.count(b"\n") + 1 if content and is_whole else None
