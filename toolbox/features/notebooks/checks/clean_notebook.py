"""Judges whether notebooks are clean: without outputs, execution counts and secrets, and valid in the current format.

Each notebook becomes a row of the cell. `clean_notebooks.py` of `toolbox/features/notebooks/` describes what is clean.
A notebook that the notebook worker was to execute in the same attempt must also have been executed from top to bottom.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict

from toolbox.features.notebooks import clean_notebooks, requested_tests, result_records
from toolbox.features.notebooks.requested_tests import RequestedTest
from toolbox.features.notebooks.worker.notebook_results import TestKind, TestOutcome, TestResult
from toolbox.ground.model.cases import FAIL_ON, CaseOutcome, CaseResult
from toolbox.ground.model.errors import ConfigurationError
from toolbox.ground.model.evidence import Evidence, Judgement
from toolbox.ground.model.foreign_text import clean
from toolbox.ground.model.text import counted, first_of, truncate
from toolbox.ground.model.verdicts import Cause
from toolbox.records.runs import junit_files
from toolbox.records.runs.evidence_files import RelativeGlob, matching

RESULTS: Final = "clean_notebook.junit.xml"
"""The file of the results in the directory of the attempt."""
_SUITE: Final = "clean"
_MAX_NAMED: Final = 3  # notebooks that the message names
_MAX_FAULTS: Final = 50  # of a notebook
_MAX_NOTEBOOKS: Final = 1000


class Check(BaseModel):
    """The notebooks to judge.

    Args:
        glob: a pattern of the notebooks.
        keep_outputs: the patterns of the notebooks that keep their outputs, because the outputs are compared with new
            outputs. In other notebooks, only cells with the tag `nbval-check-output` keep their outputs.
    """

    model_config = ConfigDict(extra="forbid")

    glob: RelativeGlob = "src/notebooks/**/*.ipynb"
    keep_outputs: tuple[RelativeGlob, ...] = ()

    def judge(self, evidence: Evidence) -> Judgement:
        """Judge all notebooks that match the pattern."""
        directory = evidence.directory
        files = [file for file in matching(directory, self.glob) if not _is_hidden(file, directory)]
        if not files:
            return Judgement(False, f"no notebook matches {self.glob}")
        if len(files) > _MAX_NOTEBOOKS:
            return Judgement(False, f"{len(files)} notebooks match {self.glob}, but at most {_MAX_NOTEBOOKS} are read")
        kept = {file for glob in self.keep_outputs for file in matching(directory, glob)}
        try:
            incomplete = _incomplete_executions(evidence)
        except ValueError as error:
            return Judgement(False, truncate(str(error)))
        try:
            cases = [_case(file, directory, incomplete, keeps_outputs=file in kept) for file in files]
            junit_files.write(directory / RESULTS, cases)
        except ConfigurationError as error:  # a library is missing
            return Judgement(False, " ".join(str(error).split()), cause=Cause.INTERNAL)
        except OSError as error:
            return Judgement(False, f"{RESULTS} cannot be written: {error.strerror}", cause=Cause.INFRASTRUCTURE)
        return self._judgement(directory)

    def _judgement(self, directory: Path) -> Judgement:
        report = junit_files.report(directory, RESULTS, FAIL_ON)
        if not report.failed:
            return Judgement(True, f"{counted(report.total, 'notebook')} clean", cases=report)
        failures = [truncate(f"{case.name}: {case.message}") for case in report.failures]
        lines = first_of(failures, _MAX_NAMED)
        if report.total > 1:
            lines.append(f"{report.failed} of {counted(report.total, 'notebook')} are not clean")
        return Judgement(False, "\n".join(lines), cases=report)


def _is_hidden(file: Path, directory: Path) -> bool:
    """Return whether a file is in a hidden directory such as `.ipynb_checkpoints`."""
    return any(part.startswith(".") for part in file.relative_to(directory).parts)


def _incomplete_executions(evidence: Evidence) -> dict[str, str]:
    """Return why notebooks were not executed from top to bottom, by their path in the directory of the attempt.

    Raises:
        ValueError: the settings or the results of the notebook worker cannot be read.
    """
    if not (evidence.directory / requested_tests.SETTINGS_FILE).exists():  # no notebook worker
        return {}
    notebooks = [test for test in requested_tests.read(evidence) if test.kind is TestKind.NOTEBOOK]
    records = result_records.read(evidence.directory)
    results = {(record.kind, record.name): record for record in records if isinstance(record, TestResult)}
    reasons = {test.file: _why_incomplete(test, results.get((test.kind, test.name))) for test in notebooks}
    return {file: reason for file, reason in reasons.items() if reason}


def _why_incomplete(test: RequestedTest, result: TestResult | None) -> str:
    if test.manual is not None:
        return ""
    if result is None:
        return "was not executed"
    if result.outcome is TestOutcome.PASSED:
        return ""
    return f"was not executed from top to bottom: {' '.join(clean(result.message).split())}"


def _case(file: Path, directory: Path, incomplete: Mapping[str, str], *, keeps_outputs: bool) -> CaseResult:
    path = file.relative_to(directory).as_posix()
    name = clean(path)
    faults = [str(fault) for fault in clean_notebooks.faults(file, keeps_outputs=keeps_outputs)]
    faults += [incomplete[path]] if path in incomplete else []
    if not faults:
        return CaseResult(_SUITE, name, CaseOutcome.PASSED)
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return CaseResult(
        _SUITE, name, CaseOutcome.FAILED, None, f"{faults[0]}{more}", "\n".join(first_of(faults, _MAX_FAULTS))
    )
