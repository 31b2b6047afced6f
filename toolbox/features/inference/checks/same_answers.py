"""Compares the answers of a server with those of another cell, for example of float16 with float32.

No expected answers are needed. Each case becomes a row of the cell. A case is skipped if its output is random, or if
only the judged cell has an answer. A case fails if only the reference cell has an answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, field_validator

from toolbox.features.inference import answer_judging, answer_records, suites
from toolbox.features.inference.answer_records import AnswerRecord
from toolbox.features.inference.case_files import Comparators
from toolbox.features.inference.client import worker_results
from toolbox.features.inference.suites import Expectations
from toolbox.ground.extensions import loading
from toolbox.ground.extensions.protocols import COMPARATORS
from toolbox.ground.model.cases import CaseOutcome, CaseResult
from toolbox.ground.model.evidence import Evidence, Judgement
from toolbox.ground.model.text import counted, truncate
from toolbox.ground.model.verdicts import Cause
from toolbox.records.runs import junit_files
from toolbox.records.runs.evidence_files import RecordFault, RelativeFile

RESULTS: Final = "same_answers.junit.xml"
"""The file of the results in the directory of the attempt."""
_MAX_NAMED: Final = 3
_FIRST_DIVERGENCE: Final = "first_divergence"
_Key = tuple[str, bool]  # the name of a case, and whether it was sent as a stream


class Check(BaseModel):
    """The reference cell, and how the answers are compared.

    Args:
        to: the axis values of the reference cell that differ from those of the judged cell.
        compare: the comparators. The answers of the reference cell are the expected ones.
        expectations: the file that names the cases.
        answers: the answers, in both cells.
        min_cases: the smallest number of cases that must have been compared.
    """

    model_config = ConfigDict(extra="forbid")

    to: dict[str, Any] = Field(min_length=1)
    compare: Comparators = [{COMPARATORS.key: _FIRST_DIVERGENCE}]
    expectations: RelativeFile = "src/expectations.json"
    answers: RelativeFile = f"files/{worker_results.ANSWERS}"
    min_cases: Annotated[int, Field(ge=1)] = 1

    @field_validator("compare")
    @classmethod
    def _compares_texts(cls, compare: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if all(spec[COMPARATORS.key] == "error" for spec in compare):
            raise ValueError("needs another comparator than `error`, which compares no texts")
        return compare

    def judge(self, evidence: Evidence) -> Judgement:
        """Compare the answers, and write the results."""
        reference = evidence.reference
        if reference is None:
            return Judgement(None, "outside of a matrix, there is no cell to compare with")
        if reference.is_missing:
            return Judgement(None, f"no comparison is possible with `{reference.name}` ({reference.fault})")
        if reference.directory is None:
            return Judgement(False, f"`{reference.name}` has no answers: {reference.fault or 'it did not pass'}")
        try:
            expected = suites.read(evidence, self.expectations, Expectations)
            others = {(record.case, record.stream): record for record in self._records(reference.directory)}
            results = list(self._results(evidence.directory, expected, others, reference.name))
        except ValueError as error:
            return Judgement(False, truncate(str(error)))
        if not results:
            return Judgement(False, f"{self.answers} has no answer")
        return self._judgement(evidence.directory, results, reference.name)

    def _judgement(self, directory: Path, results: list[CaseResult], reference: str) -> Judgement:
        try:
            junit_files.write(directory / RESULTS, results)
        except OSError as error:
            return Judgement(False, f"{RESULTS} cannot be written: {error.strerror}", cause=Cause.INFRASTRUCTURE)
        report = junit_files.report(directory, RESULTS, [CaseOutcome.FAILED])
        if report.failed:
            head = f"{report.failed} of {counted(report.total, 'answer')} differ from those of `{reference}`"
            named = [truncate(f"{case.title}: {case.message}") for case in report.failures[:_MAX_NAMED]]
            return Judgement(False, "\n".join([f"{head} ({report})", *named]), cases=report)
        message = f"{counted(report.executed, 'answer')} compared with those of `{reference}` ({report})"
        if report.executed < self.min_cases:
            return Judgement(False, f"{message}, but at least {self.min_cases} must be compared", cases=report)
        return Judgement(True, message, cases=report)

    def _records(self, directory: Path) -> Iterator[AnswerRecord]:
        """Yield the answers of a cell. Lines that are not answers are left to the check `answers`."""
        for record in answer_records.read(directory, self.answers):
            if not isinstance(record, RecordFault):
                yield record

    def _results(
        self, directory: Path, expected: Expectations, others: dict[_Key, AnswerRecord], reference: str
    ) -> Iterator[CaseResult]:
        comparators = [loading.parse(COMPARATORS, spec) for spec in self.compare]
        until_divergence = any(spec[COMPARATORS.key] == _FIRST_DIVERGENCE for spec in self.compare)
        answered: set[_Key] = set()
        for record in self._records(directory):
            answered.add((record.case, record.stream))
            expectation = expected.expectations.get(record.case)
            if expectation is None:
                continue
            suite = f"{expectation.suite} as {reference}"
            other = others.get((record.case, record.stream))
            if other is None or expectation.is_random:
                reason = "the output is random" if other is not None else f"`{reference}` did not answer this case"
                name = f"{expectation.name} (stream)" if record.stream else expectation.name
                yield CaseResult(suite, name, CaseOutcome.SKIPPED, None, reason)
            else:
                result = answer_judging.agree(
                    expectation, comparators, other, record, until_divergence=until_divergence
                )
                yield replace(result, suite=suite)
        for key in others.keys() - answered:
            if expectation := expected.expectations.get(key[0]):
                name = f"{expectation.name} (stream)" if key[1] else expectation.name
                message = f"there is no answer, but `{reference}` answered this case"
                yield CaseResult(f"{expectation.suite} as {reference}", name, CaseOutcome.FAILED, None, message)
