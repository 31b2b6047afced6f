"""Reads `results.jsonl` and `notebook_worker.json`, which a target has written.

`toolbox/notebook_worker/notebook_results.py` describes the files. The code under test can write to the files, also on
this machine. So types are validated strictly, and sizes and numbers are limited. Unknown fields are ignored. A record
that contradicts itself, such as a test that passed with a fault, is not a result.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, FailFast, Field, ValidationError, model_validator

from toolbox.model.foreign_text import clean
from toolbox.model.text import truncate, without_kind
from toolbox.notebook_worker import notebook_results
from toolbox.notebook_worker.notebook_results import Fault, TestKind, TestOutcome
from toolbox.runs.evidence_files import readable

RESULTS_FILE: Final = f"files/{notebook_results.RESULTS}"
REPORT_FILE: Final = f"files/{notebook_results.REPORT}"
LARGEST_FILE: Final = 1 << 26  # bytes
LONGEST_LINE: Final = 1 << 23  # bytes
MOST_RESULTS: Final = 10_000
MOST_FAULTS: Final = 100  # after this number of lines that are not results, the rest of the file is not read
MOST_CELLS: Final = 10_000  # of a notebook
_LARGEST_REPORT: Final = 1 << 20  # bytes
_MOST_VERSIONS: Final = 1000
_LONGEST_NAME: Final = 255  # characters; also the longest file name
_LONGEST_TEXT: Final = 1 << 18
_MOST_SECONDS: Final = 1e9
_LATEST: Final = 1e11  # seconds since 1970


class ResultsFault(ValueError):
    """A line of a file, or a whole file, cannot be read.

    Args:
        line: the number of the line, from 1; None if the whole file cannot be read.
    """

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


def _is_file_name(name: str) -> str:
    if name in {".", ".."} or "/" in name or "\\" in name or not name.isprintable():
        raise ValueError("must be the name of a file, without a directory")
    return name


FileName = Annotated[str, Field(max_length=_LONGEST_NAME), AfterValidator(_is_file_name)]
Name = Annotated[str, Field(min_length=1, max_length=_LONGEST_NAME)]
Text = Annotated[str, Field(max_length=_LONGEST_TEXT)]
Seconds = Annotated[float, Field(ge=0, le=_MOST_SECONDS)]
Moment = Annotated[float, Field(ge=0, le=_LATEST)]
Number = Annotated[int, Field(ge=0, le=MOST_CELLS)]
Bytes = Annotated[int, Field(ge=0, lt=2**63)]


class _Record(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True, allow_inf_nan=False)


class CellResult(_Record):
    """The execution of a code cell. `notebook_results.CellRecord` describes the fields."""

    number: Number
    id: Annotated[str, Field(max_length=_LONGEST_NAME)] = ""
    outcome: TestOutcome
    started: Moment | None = None
    seconds: Seconds | None = None
    cpu_seconds: Seconds | None = None
    peak_memory_bytes: Bytes | None = None


class FailedCellResult(_Record):
    """The cell at which a notebook failed. `notebook_results.FailedCell` describes the fields."""

    number: Number
    source: Text = ""
    exception: Text = ""
    traceback: Text = ""


class NotebookResult(_Record):
    """What is known about the execution of a notebook. `notebook_results.NotebookRecord` describes the fields."""

    executed: FileName = ""
    samples: FileName = ""
    cells: Annotated[tuple[CellResult, ...], Field(max_length=MOST_CELLS), FailFast()] = ()
    failed_cell: FailedCellResult | None = None


class ResultRecord(_Record):
    """The result of a test. `notebook_results.TestResult` describes the fields."""

    kind: TestKind
    name: Name
    outcome: TestOutcome
    started: Moment
    seconds: Seconds
    fault: Fault | None = None
    checked: Text = ""
    expected: Text = ""
    found: Text = ""
    message: Text = ""
    notebook: NotebookResult | None = None

    @property
    def title(self) -> str:
        """The kind and the name of the test: `notebook.train`."""
        return f"{self.kind.value}.{self.name}"

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.outcome in {TestOutcome.PASSED, TestOutcome.SKIPPED}:
            if self.fault is not None:
                raise ValueError(f"a test that {_WORDS[self.outcome]} must not have a fault")
            if self.notebook is not None and self.notebook.failed_cell is not None:
                raise ValueError(f"a notebook that {_WORDS[self.outcome]} must not have a failed cell")
        if self.notebook is not None and self.kind is not TestKind.NOTEBOOK:
            raise ValueError("only a notebook has the field `notebook`")
        return self


class WorkerReportRecord(_Record):
    """What the worker used. `notebook_results.WorkerReport` describes the fields."""

    versions: Annotated[dict[Name, Name], Field(max_length=_MOST_VERSIONS)] = {}
    environment: Annotated[str, Field(max_length=_LONGEST_NAME)] = ""
    environment_seconds: Seconds | None = None
    is_finished: bool = False
    fault: Text = ""


_WORDS: Final = {TestOutcome.PASSED: "passed", TestOutcome.SKIPPED: "was skipped"}


def read(directory: Path, file: str = RESULTS_FILE) -> Iterator[ResultRecord | ResultsFault]:
    """Yield the result of each line of a file, or why the line is not a result.

    The last line is skipped if it has no line break at its end: the worker died while it wrote this line.

    Args:
        directory: the directory of the attempt.

    Raises:
        ResultsFault: the file is missing, empty or too large, or has too many lines that are not results.
    """
    faults = 0
    for number, line in _lines(directory, file):
        result = _parsed(line, file, number)
        faults += isinstance(result, ResultsFault)
        yield result
        if faults == MOST_FAULTS:
            raise ResultsFault(f"{file} has {MOST_FAULTS} lines that are not results: the rest is not read", number)


def read_report(directory: Path, file: str = REPORT_FILE) -> WorkerReportRecord:
    """Return the report of the worker.

    Args:
        directory: the directory of the attempt.

    Raises:
        ResultsFault: the file is missing, too large, or not a report.
    """
    try:
        with readable(directory, file) as path, path.open("rb") as stream:
            content = stream.read(_LARGEST_REPORT + 1)
    except ValueError as error:
        raise ResultsFault(str(error)) from None
    if len(content) > _LARGEST_REPORT:
        raise ResultsFault(f"{file} has more than {_LARGEST_REPORT} bytes")
    try:
        return WorkerReportRecord.model_validate_json(content)
    except ValidationError as error:
        raise ResultsFault(f"{file} is not a report of the worker: {_reason(error)}") from None


def _lines(directory: Path, file: str) -> Iterator[tuple[int, bytes]]:
    """Yield the complete lines of a file with their numbers."""
    try:
        with readable(directory, file) as path, path.open("rb") as lines:
            if (size := path.stat().st_size) > LARGEST_FILE:
                raise ResultsFault(f"{file} has {size} bytes, more than {LARGEST_FILE}")
            if not size:
                raise ResultsFault(f"{file} is empty: no test has ended")
            for number in range(1, MOST_RESULTS + 2):
                if not (line := lines.readline(LONGEST_LINE + 1)):
                    return
                if number > MOST_RESULTS:
                    raise ResultsFault(f"{file} has more than {MOST_RESULTS} lines")
                if len(line) > LONGEST_LINE:
                    raise ResultsFault(f"{file}:{number} has more than {LONGEST_LINE} bytes", number)
                if line.endswith(b"\n"):
                    yield number, line
    except ValueError as error:
        raise error if isinstance(error, ResultsFault) else ResultsFault(str(error)) from None


def _parsed(line: bytes, file: str, number: int) -> ResultRecord | ResultsFault:
    try:
        return ResultRecord.model_validate_json(line)
    except ValidationError as error:
        return ResultsFault(f"{file}:{number} is not a result: {_reason(error)}", number)


def _reason(error: ValidationError) -> str:
    fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
    at = ".".join(map(str, fault["loc"]))
    reason = clean(f"{at}: {without_kind(fault['msg'])}".removeprefix(": "))
    return truncate(" ".join(reason.split()))
