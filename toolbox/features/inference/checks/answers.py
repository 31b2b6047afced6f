"""Judges the answers of a server of a language model. Each case becomes a row of the cell.

The workload sends the requests of `src/cases.json`, and writes the answers to `files/answers.jsonl`. The check compares
each answer with the expected one, and writes the results to a JUnit file in the directory of the attempt, from which
reports and the store read them. `suites.py` and `answer_records.py` of `toolbox/features/inference/` describe the other
files.

A case that was not answered does not pass, and neither does a cell whose cases were all skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, field_validator

from toolbox.features.inference import answer_judging, answer_records, suites
from toolbox.features.inference.answer_records import AnswerRecord
from toolbox.features.inference.client import worker_results
from toolbox.features.inference.suites import Expectation, Expectations, SentCases
from toolbox.ground.extensions.protocols import Comparator
from toolbox.ground.model.cases import FAIL_ON, CaseOutcome, CaseReport, CaseResult
from toolbox.ground.model.evidence import Evidence, Judgement
from toolbox.ground.model.text import counted, first_of, truncate
from toolbox.ground.model.verdicts import Cause
from toolbox.records.runs import junit_files
from toolbox.records.runs.evidence_files import RecordFault, RelativeFile

RESULTS: Final = "answers.junit.xml"
"""The file of the results in the directory of the attempt."""
_MAX_NAMED: Final = 3  # cases that the message names
_Key = tuple[str, bool]  # the name of a case, and whether it was sent as a stream


class Check(BaseModel):
    """The files of the cases and of the answers.

    Args:
        cases: the cases as they were sent to the target.
        expectations: what to expect of each case.
        answers: the answers.
        fail_on: the outcomes of cases that fail the check, `error` included.
        min_cases: the smallest number of cases whose answers must have been compared.
    """

    model_config = ConfigDict(extra="forbid")

    cases: RelativeFile = "src/cases.json"
    expectations: RelativeFile = "src/expectations.json"
    answers: RelativeFile = f"files/{worker_results.ANSWERS}"
    fail_on: Annotated[list[CaseOutcome], Field(min_length=1)] = list(FAIL_ON)
    min_cases: int = Field(default=1, ge=1)

    @field_validator("fail_on")
    @classmethod
    def _has_errors(cls, fail_on: list[CaseOutcome]) -> list[CaseOutcome]:
        if CaseOutcome.ERROR not in fail_on:
            raise ValueError("must contain `error`, because a case without an answer never passes")
        return fail_on

    def judge(self, evidence: Evidence) -> Judgement:
        """Compare the answers, and write the results."""
        return self._judge(evidence, is_partial=False)

    def finished(self, evidence: Evidence) -> CaseReport | None:
        """Return the cases that were answered before the workload was ended; None if there are none."""
        return self._judge(evidence, is_partial=True).cases

    def _judge(self, evidence: Evidence, *, is_partial: bool) -> Judgement:
        directory = evidence.directory
        try:
            answers = _Answers(
                suites.read(evidence, self.cases, SentCases),
                suites.read(evidence, self.expectations, Expectations),
            )
            answers.read(directory, self.answers, is_partial=is_partial)
        except ValueError as error:
            return Judgement(False, truncate(str(error)), "", getattr(error, "line", None))
        results = list(answers.results(is_partial=is_partial))
        if not results:
            return Judgement(False, f"{self.cases} has no case")
        try:
            junit_files.write(directory / RESULTS, results)
        except OSError as error:  # the disk of this machine is full, for example
            return Judgement(False, f"{RESULTS} cannot be written: {error.strerror}", cause=Cause.INFRASTRUCTURE)
        report = replace(
            junit_files.report(directory, RESULTS, self.fail_on, is_partial=is_partial), is_partial=is_partial
        )
        remarks = sum(bool(result.message) for result in results if result.outcome is CaseOutcome.PASSED)
        return self._judgement(report, answers.faults, remarks)

    def _judgement(self, report: CaseReport, faults: list[RecordFault], remarks: int) -> Judgement:
        if report.failed:
            named = [truncate(f"{case.title}: {case.message}") for case in report.failures[:_MAX_NAMED]]
            more = report.failed - len(named)
            lines = [f"{report.failed} of {counted(report.total, 'case')} did not pass ({report})", *named]
            lines += [f"and {more} more"] if more > 0 else []
            return Judgement(False, "\n".join([*lines, *map(str, faults[:1])]), cases=report)
        if faults:
            return Judgement(
                False, "; ".join(first_of(list(map(str, faults)), 1)), self.answers, faults[0].line, cases=report
            )
        if report.executed < self.min_cases:
            message = (
                f"{counted(report.executed, 'case')} judged ({report}), but at least {self.min_cases} must be judged"
            )
            return Judgement(False, message, cases=report)
        report = replace(report, remarks=remarks)
        return Judgement(True, report.with_remarks, cases=report)


class _Answers:
    """The results of the cases of one attempt."""

    def __init__(self, sent: SentCases, expected: Expectations) -> None:
        if missing := [case.name for case in sent.cases if case.name not in expected.expectations]:
            raise ValueError(f"there is no expectation for the case {missing[0]!r}")
        self._skipped = expected.skipped
        self._sent: dict[_Key, Expectation] = {}
        for case in sent.cases:
            self._sent[case.name, False] = expected.expectations[case.name]
            if case.stream:
                self._sent[case.name, True] = expected.expectations[case.name]
        self._comparators: dict[str, list[Comparator]] = {}
        self._results: dict[_Key, CaseResult] = {}
        self.faults: list[RecordFault] = []

    def read(self, directory: Path, file: str, *, is_partial: bool) -> None:
        """Judge all answers of a file.

        Raises:
            RecordFault: the file cannot be read.
        """
        if not self._sent:  # all cases were skipped
            return
        try:
            for number, answer in enumerate(answer_records.read(directory, file), start=1):
                if isinstance(answer, RecordFault):
                    self.faults.append(answer)
                elif (answer.case, answer.stream) not in self._sent:
                    name = truncate(repr(answer.case))
                    self.faults.append(RecordFault(f"{file}:{number} answers {name}, which was not sent", number))
                else:
                    self._add((answer.case, answer.stream), answer)
        except RecordFault as fault:
            if is_partial:
                return
            if not self._results:
                raise
            self.faults.append(fault)

    def results(self, *, is_partial: bool) -> Iterator[CaseResult]:
        """Yield the result of each case. If the attempt was ended, yield only cases with an answer."""
        for key, expectation in self._sent.items():
            if key in self._results:
                yield self._results[key]
            elif not is_partial:
                yield answer_judging.judge(expectation, (), None, stream=key[1])
        for skipped in self._skipped:
            yield CaseResult(skipped.suite, skipped.name, CaseOutcome.SKIPPED, message=skipped.reason)

    def _add(self, key: _Key, answer: AnswerRecord) -> None:
        expectation = self._sent[key]
        result = answer_judging.judge(expectation, self._comparators_of(key[0], expectation), answer, stream=key[1])
        if key in self._results:
            result = replace(result, outcome=CaseOutcome.ERROR, message="the case has several answers")
        self._results[key] = result

    def _comparators_of(self, name: str, expectation: Expectation) -> list[Comparator]:
        if name not in self._comparators:
            self._comparators[name] = expectation.comparators()
        return self._comparators[name]
