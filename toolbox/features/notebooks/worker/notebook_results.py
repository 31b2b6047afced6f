"""The results of the notebook worker: the names of its files, the records in them, and its exit statuses.

The worker writes the files into its working directory, which is `files/` of the attempt. It appends a line to
`results.jsonl` after each test and syncs the line, so that a worker that is killed leaves the results of all tests that
ended. Checks, metrics and reports read the files with `toolbox/features/notebooks/result_records.py`, which validates
the types and the limits that the records declare here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Annotated, Any, ClassVar, Final

RESULTS: Final = "results.jsonl"  # one TestResult per line
REPORT: Final = "notebook_worker.json"  # one WorkerReport
ENVIRONMENT_LOG: Final = "environment.log"  # the output of pip
EXECUTED: Final = "executed"  # the directory of the executed notebooks, NAME.ipynb
SAMPLES: Final = "samples"  # the directory of the samples of each notebook, NAME.csv

TESTED: Final = 0  # each test has a result, which may be a failure
INVALID_SETTINGS: Final = 2
CANNOT_WRITE: Final = 74
UNAVAILABLE: Final = 75  # a Jupyter server or a package index does not answer, so that no test could run


class TestOutcome(str, Enum):
    """How a test ended.

    ERROR: the test could not be executed completely.
    """

    __test__ = False  # the class is not a test of pytest

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    SKIPPED = "skipped"


class Fault(str, Enum):
    """Why a test did not pass.

    CODE: a cell raised an exception.
    EXPECTATION: a check found something other than what was expected.
    OUTPUT: the outputs of a notebook differ from the expected outputs.
    TIMEOUT: an environment, a cell, a notebook or a check exceeded its time limit.
    KERNEL_DIED: the kernel ended by itself or by a signal.
    OUT_OF_MEMORY: the kernel exceeded its memory, or a cell raised MemoryError.
    TOO_MUCH_OUTPUT: a notebook or a check wrote more than its limit.
    INVALID_NOTEBOOK: the file is missing, is not JSON, or is not a valid notebook.
    OLD_FORMAT: the notebook has a format before version 4.
    NO_KERNEL: the kernel does not exist or cannot be started.
    ENVIRONMENT: the requirements of the runtime cannot be installed.
    SERVER: the Jupyter server or the package index does not answer, or the connection was lost.
    INTERNAL: the worker is broken.
    """

    CODE = "code"
    EXPECTATION = "expectation"
    OUTPUT = "output"
    TIMEOUT = "timeout"
    KERNEL_DIED = "kernel_died"
    OUT_OF_MEMORY = "out_of_memory"
    TOO_MUCH_OUTPUT = "too_much_output"
    INVALID_NOTEBOOK = "invalid_notebook"
    OLD_FORMAT = "old_format"
    NO_KERNEL = "no_kernel"
    ENVIRONMENT = "environment"
    SERVER = "server"
    INTERNAL = "internal"


class TestKind(str, Enum):
    """What a test executes. ENVIRONMENT is the installation of the requirements of a runtime."""

    __test__ = False

    ENVIRONMENT = "environment"
    SHELL = "shell"
    PYTHON = "python"
    NOTEBOOK = "notebook"


class _Limits:
    """The limits of a field, by the names that a schema of pydantic has for them.

    Only a reader with pydantic applies the limits. The worker, which has no pydantic, does not.
    """

    def __init__(self, **limits: float) -> None:
        self._limits = limits

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        return {**handler(source), **self._limits}


MAX_CELLS: Final = 10_000  # of a notebook
_LONGEST_NAME: Final = 255  # characters; also the longest file name

Name = Annotated[str, _Limits(min_length=1, max_length=_LONGEST_NAME)]
Label = Annotated[str, _Limits(max_length=_LONGEST_NAME)]  # a name that may be empty
Text = Annotated[str, _Limits(max_length=1 << 18)]
Seconds = Annotated[float, _Limits(ge=0, le=1e9)]
Moment = Annotated[float, _Limits(ge=0, le=1e11)]  # in seconds since 1970
Number = Annotated[int, _Limits(ge=0, le=MAX_CELLS)]
Bytes = Annotated[int, _Limits(ge=0, lt=2**63)]


class _Record:
    __pydantic_config__: ClassVar[dict[str, bool]] = {"strict": True, "allow_inf_nan": False}


@dataclass(frozen=True)
class CellRecord(_Record):
    """The execution of a code cell of a notebook.

    Args:
        number: the position among the code cells of the source notebook, counted from 1; 0 for the injected parameters.
        id: the id of the cell in the notebook file; empty for formats before 4.5.
        started: when the execution began, in seconds since 1970.
        seconds: the duration.
        cpu_seconds: the CPU time that the processes of the kernel used; None if unknown.
        peak_memory_bytes: the highest resident memory of the processes of the kernel; None if unknown.
        outcome: SKIPPED for a cell with a tag that says so, or after a failure.
    """

    number: Number
    id: Label
    outcome: TestOutcome
    started: Moment | None = None
    seconds: Seconds | None = None
    cpu_seconds: Seconds | None = None
    peak_memory_bytes: Bytes | None = None


@dataclass(frozen=True)
class FailedCell(_Record):
    """The cell at which a notebook failed.

    Args:
        number: see CellRecord.
        source: the source of the cell, truncated.
        exception: the name and the message of the exception, such as `ValueError: no data`; empty without one.
        traceback: the traceback without terminal codes, truncated.
    """

    number: Number
    source: Text
    exception: Text = ""
    traceback: Text = ""


@dataclass(frozen=True)
class NotebookRecord(_Record):
    """The record of the execution of a notebook.

    Args:
        executed: the name of the executed notebook in EXECUTED; empty if there is none.
        samples: the name of the file in SAMPLES; empty if there is none.
        failed_cell: None if no single cell failed.
    """

    executed: Label = ""
    samples: Label = ""
    cells: Annotated[tuple[CellRecord, ...], _Limits(max_length=MAX_CELLS, fail_fast=True)] = ()
    failed_cell: FailedCell | None = None


@dataclass(frozen=True)
class TestResult(_Record):
    """The result of a test.

    Args:
        name: the name of the test, unique among the tests of its kind.
        checked: what the test checked, as a sentence; empty for a notebook.
        expected: what was expected; empty if the test has no single expectation.
        found: what was found, whether or not it is what was expected.
        message: one line that says why the test did not pass, or was skipped; empty if it passed.
        started: when the test began, in seconds since 1970.
        seconds: the duration.
    """

    __test__ = False

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
    notebook: NotebookRecord | None = None

    @property
    def title(self) -> str:
        """The kind and the name of the test: `notebook.train`."""
        return f"{self.kind.value}.{self.name}"

    def as_json(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class WorkerReport(_Record):
    """What the worker used. The worker writes the report before the first test, and again at its end.

    Args:
        versions: the versions of Python and of the packages that execute notebooks, by name.
        environment: the digest of the environment of the runtime; empty if the worker made no environment.
        environment_seconds: how long the installation of the environment took; None if it was in the cache.
        is_finished: whether all tests have ended.
        fault: why the worker ended early; empty if it reached its end.
    """

    versions: Annotated[dict[Name, Name], _Limits(max_length=1000)]
    environment: Label = ""
    environment_seconds: Seconds | None = None
    is_finished: bool = False
    fault: Text = ""

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return asdict(self)
