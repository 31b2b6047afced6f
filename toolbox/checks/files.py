"""Checks the files that the workload has to leave: their number, that none is empty, and that they can be parsed."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

from toolbox.model.evidence import Evidence, Judgement
from toolbox.runs.evidence_files import RelativeGlob, matching, read_document, readable

Format = Literal["json", "yaml"]
_SHOWN = 3


class Check(BaseModel):
    """A pattern, and how many files have to match it: at least one if no count is given.

    `valid` names the format that each file must have. JSON is what Python's parser accepts, which includes NaN.
    """

    model_config = ConfigDict(extra="forbid")

    glob: RelativeGlob
    count: int | None = Field(default=None, ge=0)
    not_empty: bool = True
    valid: Format | None = None

    def judge(self, evidence: Evidence) -> Judgement:
        """Count the files, and check their content."""
        found = matching(evidence.directory, self.glob)
        wanted = "at least one" if self.count is None else f"exactly {self.count}"
        enough = bool(found) if self.count is None else len(found) == self.count
        if self.not_empty and (empty := [_shown(path.name) for path in found if _is_empty(path)]):
            more = f" and {len(empty) - _SHOWN} more" if len(empty) > _SHOWN else ""
            return Judgement(False, f"{', '.join(empty[:_SHOWN])}{more} of {self.glob} is empty")
        if enough and self.valid:
            for path in found:
                if fault := _fault(evidence.directory, path.relative_to(evidence.directory).as_posix(), self.valid):
                    return fault
        return Judgement(enough, f"{len(found)} files match {self.glob}, {wanted} expected")


def _is_empty(path: Path) -> bool:
    with suppress(OSError):
        return path.stat().st_size == 0
    return False


def _shown(name: str) -> str:
    return name if name.isprintable() else repr(name)


def _fault(directory: Path, file: str, kind: Format) -> Judgement | None:
    """Return the judgement on a file that cannot be parsed; None if it can be."""
    try:
        with readable(directory, file) as path:
            content = read_document(path, file)
    except ValueError as error:
        return Judgement(False, _shown(str(error)), file)
    try:
        _parse(content.decode(), kind)
    except (ValueError, OverflowError, RecursionError, yaml.YAMLError) as error:
        line, reason = _line_and_reason(error, content)
        place = _shown(file) + (f":{line}" if line else "")
        return Judgement(False, f"{place} is not {kind.upper()}: {reason}", file, line)
    return None


def _parse(text: str, kind: Format) -> None:
    if kind == "json":
        json.loads(text, parse_int=float)  # an integer of 5000 digits is valid JSON, but too long for Python's int
    else:  # libyaml is faster, but crashes the process on deeply nested lists
        for _ in yaml.compose_all(text, yaml.SafeLoader):
            pass


def _line_and_reason(error: Exception, content: bytes) -> tuple[int | None, str]:
    match error:
        case UnicodeDecodeError():
            return content.count(b"\n", 0, error.start) + 1, "it is not UTF-8"
        case json.JSONDecodeError():
            return error.lineno, error.msg
        case yaml.MarkedYAMLError(problem_mark=yaml.Mark() as mark):
            return mark.line + 1, f"{error.problem}"
        case yaml.reader.ReaderError():
            return content.decode().count("\n", 0, error.position) + 1, error.reason
        case RecursionError():
            return None, "it is nested too deep"
        case _:
            return None, _shown(str(error))
