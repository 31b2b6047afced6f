"""Judges what a workload left behind, by the metrics and checks that the configuration names."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, ValidationError

from toolbox.model.errors import CheckFailed, ConfigurationError
from toolbox.model.events import CheckJudged, Note
from toolbox.model.evidence import Evidence, Metric
from toolbox.model.nearest import did_you_mean
from toolbox.model.text import shown
from toolbox.orchestration import session
from toolbox.system import files

RESULTS_FILE = "checks.json"


def parse_check(spec: Mapping[str, Any]) -> Any:
    """Return the check that a mapping of the configuration describes: `{check: files, glob: '*.pb', count: 1}`.

    Raises:
        ValueError: there is no such check, or one of its fields is wrong.
    """
    return _plugin("checks", "Check", "check", spec)


def parse_metric(spec: Mapping[str, Any]) -> Any:
    """Return the source of a metric: `{source: json_file, file: metrics.json, path: a.b, unit: s}`.

    Raises:
        ValueError: there is no such source, or one of its fields is wrong.
    """
    known = {key: value for key, value in spec.items() if key != "unit"} if isinstance(spec, Mapping) else spec
    return _plugin("metrics", "Source", "source", known)


def _described(parse: Callable[[Mapping[str, Any]], Any]) -> AfterValidator:
    def check(spec: dict[str, Any]) -> dict[str, Any]:
        parse(spec)
        return spec

    return AfterValidator(check)


# For the contract of a project: what is not described well is found before anything starts.
CheckSpec = Annotated[dict[str, Any], _described(parse_check)]
MetricSpec = Annotated[dict[str, Any], _described(parse_metric)]


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
        parsed = [parse_check(spec) for spec in checks]
        sources = {name: (parse_metric(spec), str(spec.get("unit", ""))) for name, spec in (metrics or {}).items()}
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
    names = [str(spec["check"]) for spec in checks]
    step = session.step()
    if not checks:
        step.recorder.record(Note(step.identity, "there are no checks here: nothing is judged"))
    evidence = Evidence(
        directory, {name: _read(name, source, unit, directory) for name, (source, unit) in sources.items()}
    )
    results = [(name, check.judge(evidence)) for name, check in zip(names, parsed, strict=True)]
    for name, judgement in results:
        step.recorder.record(CheckJudged(step.identity, name, judgement.passed, judgement.message))
    kept = {
        "metrics": {name: asdict(metric) for name, metric in evidence.metrics.items()},
        "checks": [{"check": name, **asdict(judgement)} for name, judgement in results],
    }
    files.write_json(step.directory / RESULTS_FILE, step.recorder.redactor.texts(kept))
    if failed := [f"{name}: {judgement.message}" for name, judgement in results if not judgement.passed]:
        raise CheckFailed("\n".join(failed), directory=directory)


def _read(name: str, source: Any, unit: str, directory: Path) -> Metric:
    try:
        return Metric(name, source.read(directory), unit)
    except (OSError, ValueError) as error:
        return Metric(name, None, unit, str(error))


def _plugin(package: str, model: str, key: str, spec: Mapping[str, Any]) -> Any:
    if not isinstance(spec, Mapping):
        raise ValueError(  # noqa: TRY004  # as every other fault of a configuration
            f"{shown(spec)} is not a {key}: a mapping `{{{key}: NAME, ...}}` was expected"
        )
    name = str(spec.get(key))
    folder = Path(__file__).parent.parent / package
    known = [path.stem for path in folder.glob("[!_]*.py")]
    if name not in known:
        raise ValueError(f"unknown {key} `{name}`: {did_you_mean(name, known)}")
    kind = getattr(importlib.import_module(f"toolbox.{package}.{name}"), model)
    try:
        return kind.model_validate({field: value for field, value in spec.items() if field != key})
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}".removeprefix(": ") for fault in error.errors()]
        raise ValueError(f"{key} `{name}`: {'; '.join(faults)}") from None
