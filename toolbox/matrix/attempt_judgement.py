"""Judges an attempt: reads its metrics, runs the checks, and derives the verdict."""

from __future__ import annotations

import logging
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from toolbox.ground.extensions import loading, protocols
from toolbox.ground.extensions.protocols import CaseCheck, Check, HistoryCheck, MetricSource, RelationCheck
from toolbox.ground.model.bounds import Direction
from toolbox.ground.model.cases import CaseReport
from toolbox.ground.model.errors import describe
from toolbox.ground.model.evidence import PREVENTING, Evidence, Judgement, Metric, Reference, worst_cause
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.ground.model.workloads import EndedBy, WorkloadOutcome
from toolbox.records.runs.steps import Outcome

log = logging.getLogger(__name__)

_EXIT_STATUS = "exit_status"
_COMMON = ("unit", "direction")  # the fields of a metric that do not belong to its source


@dataclass(frozen=True, slots=True)
class NamedCheck:
    """A check and its name.

    Args:
        to: the settings of the cell to compare with; None if the check needs no other cell.
    """

    name: str
    check: Check
    to: Mapping[str, Any] | None = field(init=False)

    def __post_init__(self) -> None:
        # A field, because `isinstance` is slow for a protocol, and each cell needs the answer several times.
        object.__setattr__(self, "to", self.check.to if isinstance(self.check, RelationCheck) else None)

    @classmethod
    def parse(cls, spec: Mapping[str, Any]) -> Self:
        """Parse the description of a check in the configuration: `{check: files, glob: '*.pb', count: 1}`.

        Raises:
            ValueError: there is no such check, or one of its fields is wrong.
        """
        check = loading.parse(protocols.CHECKS, spec)
        return cls(str(spec["check"]), check)


@dataclass(frozen=True, slots=True)
class NamedSource:
    """A metric: its source, unit and direction."""

    source: MetricSource
    unit: str = ""
    direction: Direction | None = None

    @classmethod
    def parse(cls, spec: Mapping[str, Any]) -> Self:
        """Parse the description of a metric: `{source: json_file, file: metrics.json, path: a.b, unit: s}`.

        Raises:
            ValueError: there is no such source, or one of the fields is wrong.
        """
        own = {key: value for key, value in spec.items() if key not in _COMMON} if isinstance(spec, Mapping) else spec
        source = loading.parse(protocols.METRICS, own)
        direction = spec.get("direction")
        if direction is not None and (not isinstance(direction, str) or direction not in set(Direction)):
            raise ValueError(f"`direction` must be `lower` or `higher` (which values are better), not {direction!r}")
        return cls(source, str(spec.get("unit") or ""), Direction(direction) if direction is not None else None)


@dataclass(frozen=True, slots=True)
class Expectations:
    """The metrics to read and the checks to run.

    Args:
        by_history: the metrics that are compared with the bounds of earlier runs.
    """

    checks: tuple[NamedCheck, ...]
    sources: Mapping[str, NamedSource]
    by_history: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        checks = [named.check for named in self.checks]
        bounded = [check.metric for check in checks if isinstance(check, HistoryCheck) and check.bounds is not None]
        object.__setattr__(self, "by_history", tuple(bounded))

    @classmethod
    def parse(cls, checks: Sequence[Mapping[str, Any]], metrics: Mapping[str, Mapping[str, Any]]) -> Self:
        """Parse the checks and metrics of the configuration. If they lack the check `exit_status`, it is added.

        Raises:
            ValueError: the description of a check or a metric is wrong.
        """
        named = [NamedCheck.parse(spec) for spec in checks]
        if not any(check.name == _EXIT_STATUS for check in named):
            named.insert(0, NamedCheck.parse({"check": _EXIT_STATUS}))
        return cls(tuple(named), {name: NamedSource.parse(spec) for name, spec in metrics.items()})

    def measure(self, directory: Path) -> dict[str, Metric]:
        """Read the metrics of an attempt."""
        return {name: _read(name, source, directory) for name, source in self.sources.items()}


def judge(
    checks: Sequence[NamedCheck],
    evidence: Evidence,
    reference: Callable[[Mapping[str, Any]], Reference | None] = lambda _: None,
) -> list[tuple[str, Judgement]]:
    """Run the checks, and return their names and judgements.

    Args:
        reference: returns the cell to compare with, given its settings.
    """
    judgements = []
    for named in checks:
        other = reference(named.to) if named.to is not None else None
        judgements.append((named.name, _judge(named, replace(evidence, reference=other))))
    return judgements


def finished_cases(checks: Sequence[NamedCheck], evidence: Evidence) -> list[CaseReport]:
    """Return the test cases that finished in an attempt whose workload did not end by itself."""
    reports = []
    for named in checks:
        if isinstance(named.check, CaseCheck):
            try:
                reports.append(named.check.finished(evidence))
            except Exception:  # see `_judge`
                log.exception("the check `%s` is broken", named.name)
    return [report for report in reports if report is not None]


def _judge(named: NamedCheck, evidence: Evidence) -> Judgement:
    try:
        return named.check.judge(evidence)
    except Exception as error:
        # The check may come from a workspace. Its bugs must not stop other checks and cells.
        log.exception("the check `%s` is broken", named.name)
        return Judgement(False, f"the check is broken: {describe(error)}")


def outcome_without_checks(outcome: WorkloadOutcome) -> Outcome | None:
    """Return the outcome of an attempt whose workload did not end by itself; None if the checks decide the outcome."""
    text = outcome.message
    match outcome.ended_by:
        case EndedBy.TIMEOUT | EndedBy.SILENCE:
            return Outcome(Verdict.FAILED, Cause.TIMEOUT, text)
        case EndedBy.CANCELLED:
            return Outcome(Verdict.CANCELLED, Cause.INTERRUPTED, text or "the attempt was cancelled")
        case EndedBy.NOT_STARTED:
            return Outcome(Verdict.ERROR, Cause.CONFIGURATION, text)
        case EndedBy.LOST | EndedBy.EVICTED | EndedBy.IMAGE:
            return Outcome(Verdict.ERROR, Cause.INFRASTRUCTURE, text)
        case EndedBy.NO_CAPACITY:
            return Outcome(Verdict.ERROR, Cause.CAPACITY, text)
        case EndedBy.OUT_OF_MEMORY:
            return Outcome(Verdict.FAILED, Cause.PRODUCT, text)
        case EndedBy.EXIT | EndedBy.SIGNAL:
            if outcome.log_fault:
                return Outcome(Verdict.ERROR, Cause.INFRASTRUCTURE, f"the logs are incomplete: {outcome.log_fault}")
            return None


def verdict(judgements: Sequence[tuple[str, Judgement]]) -> Outcome:
    """Return the outcome that the judgements decide. The worst cause of the failed checks is the cause.

    1. `internal`, then `infrastructure`, if a check names it: the verdict is `error`, and the message is only that of
       this check, because the other checks had nothing to judge.
    2. `product`, if a check names it, or if `exit_status` failed without a cause of its own.
    3. `timeout`, if a check names it.
    4. `regression`, if all failed checks found values out of the range of earlier runs, one of them worse.
    5. `check` otherwise.
    """
    failed = [(name, judgement) for name, judgement in judgements if judgement.passed is False]
    if not failed:
        return Outcome(Verdict.PASSED)
    default = {_EXIT_STATUS: Cause.PRODUCT}
    cause = worst_cause(judgement.cause or default.get(name) for name, judgement in failed)
    verdict = Verdict.ERROR if cause in PREVENTING else Verdict.FAILED
    if verdict is Verdict.ERROR:
        failed = [(name, judgement) for name, judgement in failed if judgement.cause is cause][:1]
    message = "\n".join(f"{name}: {judgement.message}" for name, judgement in failed)
    return Outcome(verdict, cause or _regression_or_check(failed), message)


def _regression_or_check(failed: Sequence[tuple[str, Judgement]]) -> Cause:
    deviations = [judgement.deviation for _, judgement in failed]
    if all(each is not None for each in deviations) and any(each and not each.improves for each in deviations):
        return Cause.REGRESSION
    return Cause.CHECK


def without(judgements: Sequence[tuple[str, Judgement]], metrics: Iterable[str]) -> list[tuple[str, Judgement]]:
    """Return the judgements without the deviations of these metrics."""
    excluded = set(metrics)
    return [
        (name, judgement)
        for name, judgement in judgements
        if judgement.deviation is None or judgement.deviation.metric not in excluded
    ]


def _read(name: str, named: NamedSource, directory: Path) -> Metric:
    unit, direction = named.unit, named.direction
    try:
        value = named.source.read(directory)
    except (OSError, ValueError) as error:
        return Metric(name, None, unit, str(error), direction=direction)
    except Exception as error:
        log.exception("the source of the metric `%s` is broken", name)
        return Metric(name, None, unit, f"the source is broken: {describe(error)}", direction=direction)
    if isinstance(value, tuple):
        return Metric(name, statistics.median(value), unit, samples=value, direction=direction)
    return Metric(name, value, unit, direction=direction)
