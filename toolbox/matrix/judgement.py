"""Judges what an attempt left behind: reads its metrics, asks the checks, and says what verdict that makes."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

from toolbox.config import plugins
from toolbox.model.evidence import Evidence, Judgement, Metric, Reference
from toolbox.model.verdicts import Cause, Verdict
from toolbox.model.workloads import EndedBy, WorkloadOutcome
from toolbox.runs.steps import Outcome

_EXIT_STATUS = "exit_status"


class Check(Protocol):
    """A plugin of `toolbox.checks`. One that compares with another cell has a field `to`, which says with which."""

    def judge(self, evidence: Evidence) -> Judgement:
        """Return what it says of an attempt."""


class Source(Protocol):
    """A plugin of `toolbox.metrics`."""

    def read(self, directory: Path) -> float | tuple[float, ...]:
        """Return the metric, or each of its samples."""


@dataclass(frozen=True, slots=True)
class NamedCheck:
    """A check with its name. `to`: how the cell differs that it compares with; None where it compares with none."""

    name: str
    check: Check
    to: Mapping[str, Any] | None = None

    @classmethod
    def parse(cls, spec: Mapping[str, Any]) -> Self:
        """Read what the configuration says of a check.

        Raises:
            ValueError: it is not described well.
        """
        check = parse_check(spec)
        return cls(str(spec["check"]), check, getattr(check, "to", None))


@dataclass(frozen=True, slots=True)
class Expectations:
    """The metrics to read and the checks to ask."""

    checks: tuple[NamedCheck, ...]
    sources: Mapping[str, tuple[Source, str]]

    @classmethod
    def parse(cls, checks: Sequence[Mapping[str, Any]], metrics: Mapping[str, Mapping[str, Any]]) -> Self:
        """Read what the configuration says. Every attempt has its exit status checked, if by nothing else.

        Raises:
            ValueError: a check or a metric is not described well.
        """
        named = [NamedCheck.parse(spec) for spec in checks]
        if not any(check.name == _EXIT_STATUS for check in named):
            named.insert(0, NamedCheck.parse({"check": _EXIT_STATUS}))
        sources = {name: (parse_metric(spec), str(spec.get("unit", ""))) for name, spec in metrics.items()}
        return cls(tuple(named), sources)

    def measure(self, directory: Path) -> dict[str, Metric]:
        """Read the metrics of an attempt."""
        return {name: _read(name, source, unit, directory) for name, (source, unit) in self.sources.items()}


def parse_check(spec: Mapping[str, Any]) -> Any:
    """Return the check that a mapping of the configuration describes: `{check: files, glob: '*.pb', count: 1}`.

    Raises:
        ValueError: there is no such check, or one of its fields is wrong.
    """
    return plugins.parse("checks", "Check", "check", spec)


def parse_metric(spec: Mapping[str, Any]) -> Any:
    """Return the source of a metric: `{source: json_file, file: metrics.json, path: a.b, unit: s}`.

    Raises:
        ValueError: there is no such source, or one of its fields is wrong.
    """
    known = {key: value for key, value in spec.items() if key != "unit"} if isinstance(spec, Mapping) else spec
    return plugins.parse("metrics", "Source", "source", known)


def judge(
    checks: Sequence[NamedCheck],
    directory: Path,
    metrics: Mapping[str, Metric],
    reference: Callable[[Mapping[str, Any]], Reference | None],
) -> list[tuple[str, Judgement]]:
    """Ask the checks.

    Args:
        reference: returns the cell to compare with.
    """
    found = []
    for named in checks:
        other = reference(named.to) if named.to is not None else None
        found.append((named.name, named.check.judge(Evidence(directory, metrics, other))))
    return found


def without_judgement(outcome: WorkloadOutcome) -> Outcome | None:
    """Return what an attempt comes to whose workload did not end by itself; None where the checks have to say."""
    text = outcome.message
    match outcome.ended_by:
        case EndedBy.TIMEOUT | EndedBy.SILENCE:
            return Outcome(Verdict.FAILED, Cause.TIMEOUT, text)
        case EndedBy.CANCELLED:
            return Outcome(Verdict.CANCELLED, Cause.INTERRUPTED, text or "it was cancelled")
        case EndedBy.NOT_STARTED:
            return Outcome(Verdict.ERROR, Cause.CONFIGURATION, text)
        case EndedBy.LOST:
            return Outcome(Verdict.ERROR, Cause.INFRASTRUCTURE, text)
        case EndedBy.EXIT | EndedBy.SIGNAL:
            if outcome.log_fault:
                return Outcome(Verdict.ERROR, Cause.INFRASTRUCTURE, f"its logs are not whole: {outcome.log_fault}")
            return None


def verdict(judgements: Sequence[tuple[str, Judgement]]) -> Outcome:
    """Return what the checks come to: a workload that failed is the fault of the product, whatever else is wrong."""
    bad = [(name, judgement.message) for name, judgement in judgements if judgement.passed is False]
    if not bad:
        return Outcome(Verdict.PASSED)
    cause = Cause.PRODUCT if any(name == _EXIT_STATUS for name, _ in bad) else Cause.CHECK
    return Outcome(Verdict.FAILED, cause, "\n".join(f"{name}: {message}" for name, message in bad))


def _read(name: str, source: Source, unit: str, directory: Path) -> Metric:
    try:
        value = source.read(directory)
    except (OSError, ValueError) as error:
        return Metric(name, None, unit, str(error))
    if isinstance(value, tuple):
        return Metric(name, statistics.median(value), unit, samples=value)
    return Metric(name, value, unit)
