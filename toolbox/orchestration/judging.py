"""Judges what a workload of the orchestration left behind, by the metrics and checks that the configuration names.

The cells of a matrix are judged by it themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator

from toolbox.matrix import judgement
from toolbox.matrix.judgement import Expectations, NamedCheck
from toolbox.model.errors import CheckFailed, ConfigurationError
from toolbox.model.events import CheckJudged, MetricMeasured, Note
from toolbox.model.evidence import Judgement, Metric
from toolbox.orchestration import session
from toolbox.runs.layout import StepDirectory
from toolbox.system import filesystem


def _described(parse: Callable[[Mapping[str, Any]], Any]) -> AfterValidator:
    def check(spec: dict[str, Any]) -> dict[str, Any]:
        parse(spec)
        return spec

    return AfterValidator(check)


# For the contract of a project: what is not described well is found before anything starts.
CheckSpec = Annotated[dict[str, Any], _described(judgement.parse_check)]
MetricSpec = Annotated[dict[str, Any], _described(judgement.parse_metric)]


def judge(
    directory: Path,
    checks: Sequence[Mapping[str, Any]],
    metrics: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Judge what is in a directory, keep the results in `checks.json` of the current step, and report them.

    Args:
        checks: the checks, as the configuration describes them.
        metrics: the sources of the metrics, by the name of the metric.

    Raises:
        ConfigurationError: a check or a metric is not described well.
        CheckFailed: it names the checks that did not pass, with what they saw.
    """
    try:
        named = tuple(NamedCheck.parse(spec) for spec in checks)
        expected = Expectations(named, Expectations.parse((), metrics or {}).sources)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
    step = session.step()
    if expected.by_history:
        raise ConfigurationError("`bounds: auto` works only for cells of a matrix: set `lower` or `upper` here")
    if not checks:
        step.recorder.record(Note(step.identity, "there are no checks here: nothing is judged"))
    measured = expected.measure(directory)
    for metric in measured.values():
        step.recorder.record(MetricMeasured.of(step.identity, metric))
    results = judgement.judge(expected.checks, directory, measured, lambda _: None)
    for name, found in results:
        step.recorder.record(CheckJudged.of(step.identity, name, found))
    kept = {
        "metrics": {name: _without_nulls(metric, "direction") for name, metric in measured.items()},
        "checks": [{"check": name, **_without_nulls(found, "deviation")} for name, found in results],
    }
    redacted = step.recorder.redactor.redact_nested(kept, keep_keys=True)
    filesystem.write_json(StepDirectory(step.directory).checks, redacted)
    if failed := [f"{name}: {found.message}" for name, found in results if found.passed is False]:
        raise CheckFailed("\n".join(failed), directory=directory)


def _without_nulls(value: Metric | Judgement, *names: str) -> dict[str, Any]:
    return {name: field for name, field in asdict(value).items() if field is not None or name not in names}
