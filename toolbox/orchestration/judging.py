"""Applies metrics and checks of the configuration to files that an orchestration produced outside of the matrix.

`matrix.run` judges the cells of the matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator

from toolbox.ground.model.errors import CheckFailed, ConfigurationError, StepError
from toolbox.ground.model.events import CheckJudged, MetricMeasured, Note, case_events
from toolbox.ground.model.evidence import Evidence, Judgement, Metric
from toolbox.ground.model.verdicts import Verdict
from toolbox.ground.system import filesystem
from toolbox.matrix import attempt_judgement
from toolbox.matrix.attempt_judgement import Expectations, NamedCheck, NamedSource
from toolbox.orchestration import session
from toolbox.records.runs.layout import StepDirectory


def _checked_by(parse: Callable[[Mapping[str, Any]], Any]) -> AfterValidator:
    def check(spec: dict[str, Any]) -> dict[str, Any]:
        parse(spec)
        return spec

    return AfterValidator(check)


# A project uses these types in its contract, so that faulty descriptions are reported before the run starts.
CheckSpec = Annotated[dict[str, Any], _checked_by(NamedCheck.parse)]
MetricSpec = Annotated[dict[str, Any], _checked_by(NamedSource.parse)]


def judge(
    directory: Path,
    checks: Sequence[Mapping[str, Any]],
    metrics: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Judge the files of a directory, and write the results to `checks.json` of the current step and to the journal.

    Args:
        checks: the descriptions of the checks in the configuration.
        metrics: the descriptions of the metrics, by the name of the metric.

    Raises:
        ConfigurationError: the description of a check or a metric is wrong.
        CheckFailed: checks did not pass. The message names each failed check with its reason.
        StepError: a check reports that nothing could be tested, because the infrastructure or the test itself failed.
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
        step.recorder.record(Note(step.identity, "no checks are configured here: nothing is judged"))
    measured = expected.measure(directory)
    for metric in measured.values():
        step.recorder.record(MetricMeasured.from_metric(step.identity, metric))
    results = attempt_judgement.judge(expected.checks, Evidence(directory, measured))
    for name, judgement_ in results:
        step.recorder.record(CheckJudged.from_judgement(step.identity, name, judgement_))
        for event in case_events(step.identity, judgement_.cases) if judgement_.cases is not None else ():
            step.recorder.record(event)
    content = {
        "metrics": {name: _without_empty(metric, "direction") for name, metric in measured.items()},
        "checks": [
            {
                "check": name,
                **_without_empty(replace(judgement_, cases=None), "deviation", "cases", "cause"),
            }
            for name, judgement_ in results
        ],
    }
    filesystem.write_json(
        StepDirectory(step.directory).checks, step.recorder.redactor.redact_nested(content, keep_keys=True)
    )
    outcome = attempt_judgement.verdict(results)
    if outcome.cause is None:
        return
    if outcome.verdict is Verdict.ERROR:
        raise StepError(outcome.message, cause=outcome.cause, directory=directory)
    raise CheckFailed(outcome.message, cause=outcome.cause, directory=directory)


def _without_empty(value: Metric | Judgement, *names: str) -> dict[str, Any]:
    return {name: field for name, field in asdict(value).items() if field or name not in names}
