"""Executes one notebook at a place, and judges it. The worker calls `run` for each notebook."""

from __future__ import annotations

import errno
import hashlib
import re
import shutil
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from toolbox.features.notebooks.worker import (
    cell_usage,
    nbformat_import,
    notebook_reading,
    notebook_results,
    pip_failures,
)
from toolbox.features.notebooks.worker.execution_place import Place, PlaceError, RunningKernel
from toolbox.features.notebooks.worker.failure_texts import cleaned_source, one_line
from toolbox.features.notebooks.worker.notebook_reading import NotebookFile, NotebookFileError
from toolbox.features.notebooks.worker.notebook_results import (
    CellRecord,
    FailedCell,
    Fault,
    NotebookRecord,
    TestKind,
    TestOutcome,
    TestResult,
)
from toolbox.features.notebooks.worker.notebook_settings import Limits, NotebookSettings
from toolbox.features.notebooks.worker.temporary_directories import temporary_directory

if TYPE_CHECKING:
    from toolbox.features.notebooks.worker.kernel_connection import Connection
    from toolbox.features.notebooks.worker.notebook_client import CellsClient
    from toolbox.features.notebooks.worker.output_comparison import Mismatch

_MAX_NAME: Final = 100
_ERRORS: Final = frozenset({Fault.SERVER, Fault.INTERNAL, Fault.ENVIRONMENT})


def run(
    notebook: NotebookSettings,
    place: Place,
    *,
    sources: Path,
    directory: Path,
    limits: Limits,
    sample_seconds: float,
) -> TestResult:
    """Execute a notebook. The thread of the caller must have no running event loop.

    Args:
        sources: the directory to which `notebook.file` is relative.
        directory: where EXECUTED and SAMPLES are.
        sample_seconds: the interval between two samples of the resource use.

    Raises:
        CannotWriteError: the executed notebook cannot be written.
    """
    nbformat_import.load()
    execution = _Execution(notebook, place, sources, directory, limits, sample_seconds)
    started, begin = time.time(), time.monotonic()
    result = execution.result()
    return replace(result, started=started, seconds=time.monotonic() - begin)


def file_stem(name: str) -> str:
    """Return the name of the files of a test, without suffix. Different tests get different names."""
    stem = re.sub(r"[^A-Za-z0-9._-]", "_", name).lstrip(".")[:_MAX_NAME]
    return stem if stem and stem == name else f"{stem}-{hashlib.sha256(name.encode(errors='replace')).hexdigest()[:8]}"


class _Execution:
    def __init__(
        self,
        notebook: NotebookSettings,
        place: Place,
        sources: Path,
        directory: Path,
        limits: Limits,
        sample_seconds: float,
    ) -> None:
        self._notebook = notebook
        self._place = place
        self._sources = sources
        self._path = sources / notebook.file
        self._limits = limits
        self._sample_seconds = sample_seconds
        stem = file_stem(notebook.name)
        self._executed = directory / notebook_results.EXECUTED / f"{stem}.ipynb"
        self._samples = directory / notebook_results.SAMPLES / f"{stem}.csv"

    def result(self) -> TestResult:
        from toolbox.features.notebooks.worker.executed_notebook import CannotWriteError

        if self._notebook.manual is not None:
            return self._skipped(one_line(self._notebook.manual) or "the notebook is marked as manual")
        try:
            file = notebook_reading.read(self._path, self._sources)
            return self._skipped(reason) if (reason := _skip_reason(file)) else self._executed_result(file)
        except (NotebookFileError, PlaceError) as error:
            return self._ended(error.fault, one_line(str(error)))
        except CannotWriteError:
            raise
        except Exception as error:
            if pip_failures.is_disk_full([str(error)]):  # for example while the files of the notebook were copied
                raise CannotWriteError(errno.ENOSPC, "No space left on device") from error
            traceback.print_exc(file=sys.stderr)
            return self._ended(Fault.INTERNAL, f"the worker failed: {one_line(repr(error))}")

    def _executed_result(self, file: NotebookFile) -> TestResult:
        from toolbox.features.notebooks.worker import kernel_connection

        with (
            _copy_of(self._path.parent) as directory,
            self._place.kernel(directory) as kernel,
            kernel_connection.connected(kernel, self._limits.output_bytes) as connection,
        ):
            _check_language(file, connection.language)
            client = self._execute(file, kernel, connection)
        return self._judged(file, client)

    def _execute(self, file: NotebookFile, kernel: RunningKernel, connection: Connection) -> CellsClient:
        from toolbox.features.notebooks.worker import notebook_engine
        from toolbox.features.notebooks.worker.notebook_client import CellLimits

        for path in (self._executed, self._samples):
            path.parent.mkdir(parents=True, exist_ok=True)
        numbers = notebook_engine.prepare(file, self._notebook.parameters, connection)
        limits = CellLimits(self._notebook.cell_timeout, self._notebook.timeout, self._limits.output_bytes)
        execution = notebook_engine.Execution(kernel, connection, limits, numbers)
        with kernel.sampling(self._samples, self._sample_seconds):
            return notebook_engine.execute(file, self._executed, execution)

    def _judged(self, file: NotebookFile, client: CellsClient) -> TestResult:
        samples = cell_usage.read(self._samples)
        records = tuple(client.records) if file.has_ids else _without_ids(client.records)
        record = NotebookRecord(
            executed=self._executed.name,
            samples=self._samples.name if samples else "",
            cells=cell_usage.with_usage(records, samples),
            failed_cell=client.failed_cell,
        )
        if client.failure and client.failed_cell:
            message = one_line(f"{_cell_name(client.failed_cell.number)}: {client.failure}")
            return replace(self._ended(client.failure.fault, message), notebook=record)
        return self._compared(file, record)

    def _compared(self, file: NotebookFile, record: NotebookRecord) -> TestResult:
        """Compare the outputs of a notebook whose cells did not fail."""
        from toolbox.features.notebooks.worker import output_comparison
        from toolbox.features.notebooks.worker.output_comparison import Comparison
        from toolbox.features.notebooks.worker.varying_texts import PatternError

        passed = replace(self._result(TestOutcome.PASSED), notebook=record)
        executed = {cell.number for cell in record.cells if cell.outcome is TestOutcome.PASSED}
        comparisons = [
            Comparison(number, expected, cell.outputs)
            for number, (cell, expected) in enumerate(zip(file.code_cells, file.expected, strict=True), start=1)
            if number in executed and output_comparison.is_compared(cell, all_cells=self._notebook.compare_outputs)
        ]
        if any(pair.found for pair in comparisons) and not any(pair.expected for pair in comparisons):
            message = "the file has no outputs to compare with: execute the notebook and save it with its outputs"
            return replace(self._ended(Fault.OUTPUT, message), notebook=record)
        try:
            mismatches = output_comparison.mismatches(comparisons, self._notebook.ignore)
        except PatternError as error:
            return replace(self._ended(Fault.OUTPUT, one_line(str(error))), notebook=record)
        return self._mismatched(mismatches, file, record) if mismatches else passed

    def _mismatched(self, mismatches: Sequence[Mismatch], file: NotebookFile, record: NotebookRecord) -> TestResult:
        first, numbers = mismatches[0], {mismatch.number for mismatch in mismatches}
        more = f" (and {len(mismatches) - 1} more cells)" if len(mismatches) > 1 else ""
        return replace(
            self._ended(Fault.OUTPUT, one_line(f"{_cell_name(first.number)}: {first.message}{more}")),
            expected=first.expected,
            found=first.found,
            notebook=replace(
                record,
                failed_cell=FailedCell(
                    first.number,
                    cleaned_source(file.code_cells[first.number - 1].source),
                    traceback=first.diff,
                ),
                cells=tuple(
                    replace(cell, outcome=TestOutcome.FAILED) if cell.number in numbers else cell
                    for cell in record.cells
                ),
            ),
        )

    def _ended(self, fault: Fault, message: str) -> TestResult:
        outcome = TestOutcome.ERROR if fault in _ERRORS else TestOutcome.FAILED
        return replace(self._result(outcome), fault=fault, message=message)

    def _skipped(self, reason: str) -> TestResult:
        return replace(self._result(TestOutcome.SKIPPED), message=reason)

    def _result(self, outcome: TestOutcome) -> TestResult:
        return TestResult(TestKind.NOTEBOOK, self._notebook.name, outcome, started=0.0, seconds=0.0)


def _skip_reason(file: NotebookFile) -> str:
    cells = file.code_cells
    if file.manual is not None:
        return file.manual
    if not any(cell.source.strip() for cell in cells):
        return "the notebook has no code cell"
    if all(notebook_reading.SKIP_TAGS & notebook_reading.tags(cell) for cell in cells):
        return "each code cell of the notebook has a tag that skips it"
    return ""


def _check_language(file: NotebookFile, language: str) -> None:
    comparable = notebook_reading.comparable_language
    if file.language and language and comparable(file.language) != comparable(language):
        raise NotebookFileError(
            f"the notebook is written in {file.language}, but the kernel of the runtime executes {language}: "
            f"name a kernel for {file.language} in `kernel` of the runtime",
            Fault.NO_KERNEL,
        )


def _cell_name(number: int) -> str:
    return f"code cell {number}" if number else "the cell with the parameters"


def _without_ids(records: list[CellRecord]) -> tuple[CellRecord, ...]:
    return tuple(replace(record, id="") for record in records)


@contextmanager
def _copy_of(directory: Path) -> Iterator[Path]:
    """Copy a directory, so that notebooks do not see the files of one another."""
    with temporary_directory() as temporary:
        copy = temporary / "work"
        shutil.copytree(directory, copy, symlinks=True, ignore=_special_files)
        yield copy


def _special_files(directory: str, names: list[str]) -> list[str]:
    """Return the names of pipes, sockets and devices, which cannot be copied."""
    paths = [Path(directory, name) for name in names]
    return [path.name for path in paths if not (path.is_symlink() or path.is_file() or path.is_dir())]
