"""Checks the files of an attempt: how many match a pattern, whether one is empty, and whether they can be parsed."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

from toolbox.ground.model.evidence import Evidence, Judgement
from toolbox.records.runs.evidence_files import RelativeGlob, matching, read_document, readable

Format = Literal["json", "yaml"]
_MAX_NAMES = 3


class Check(BaseModel):
    """The expected files.

    Args:
        count: the exact number of files; None for one or more.
        not_empty: whether an empty file fails the check.
        valid: the format that each file must have. In JSON, NaN and infinity are accepted.
    """

    model_config = ConfigDict(extra="forbid")

    glob: RelativeGlob
    count: int | None = Field(default=None, ge=0)
    not_empty: bool = True
    valid: Format | None = None

    def judge(self, evidence: Evidence) -> Judgement:
        """Count the files, and check their content."""
        files = matching(evidence.directory, self.glob)
        expected = "at least one" if self.count is None else f"exactly {self.count}"
        is_count_right = bool(files) if self.count is None else len(files) == self.count
        if self.not_empty and (empty := [_printable(path.name) for path in files if _is_empty(path)]):
            more = f" and {len(empty) - _MAX_NAMES} more" if len(empty) > _MAX_NAMES else ""
            return Judgement(False, f"empty files match {self.glob}: {', '.join(empty[:_MAX_NAMES])}{more}")
        if is_count_right and self.valid:
            for path in files:
                if fault := _fault(evidence.directory, path.relative_to(evidence.directory).as_posix(), self.valid):
                    return fault
        return Judgement(is_count_right, f"{len(files)} files match {self.glob}; required: {expected}")


def _is_empty(path: Path) -> bool:
    with suppress(OSError):
        return path.stat().st_size == 0
    return False


def _printable(name: str) -> str:
    return name if name.isprintable() else repr(name)


def _fault(directory: Path, file: str, kind: Format) -> Judgement | None:
    """Return the judgement on a file that cannot be parsed; None if the file is valid."""
    try:
        with readable(directory, file) as path:
            content = read_document(path, file)
    except ValueError as error:
        return Judgement(False, _printable(str(error)), file)
    try:
        _parse(content.decode(), kind)
    except (ValueError, OverflowError, RecursionError, yaml.YAMLError) as error:
        line, reason = _line_and_reason(error, content)
        location = _printable(file) + (f":{line}" if line else "")
        return Judgement(False, f"{location} is not {kind.upper()}: {reason}", file, line)
    return None


def _parse(text: str, kind: Format) -> None:
    if kind == "json":
        json.loads(text, parse_int=float)  # `int` refuses integers of more than 4300 digits, which JSON allows
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
            return None, "it is nested too deeply"
        case _:
            return None, _printable(str(error))
