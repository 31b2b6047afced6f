"""Judges what a workload left behind, by the metrics and checks that the configuration names."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from toolbox.model.errors import CheckFailed, ConfigurationError
from toolbox.model.events import CheckJudged
from toolbox.model.evidence import Evidence, Metric
from toolbox.model.nearest import did_you_mean
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
    return _plugin(
        "metrics", "Source", "source", {key: value for key, value in spec.items() if key != "unit"}
    )


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
        parsed = [(str(spec.get("check")), parse_check(spec)) for spec in checks]
        sources = {
            name: (parse_metric(spec), str(spec.get("unit", ""))) for name, spec in (metrics or {}).items()
        }
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
    step = session.step()
    evidence = Evidence(
        directory, {name: _read(name, source, unit, directory) for name, (source, unit) in sources.items()}
    )
    results = [(name, check.judge(evidence)) for name, check in parsed]
    for name, judgement in results:
        step.recorder.record(CheckJudged(step.identity, name, judgement.passed, judgement.message))
    files.write_json(
        step.directory / RESULTS_FILE,
        {
            "metrics": {name: asdict(metric) for name, metric in evidence.metrics.items()},
            "checks": [{"check": name, **asdict(judgement)} for name, judgement in results],
        },
    )
    if failed := [f"{name}: {judgement.message}" for name, judgement in results if not judgement.passed]:
        raise CheckFailed("\n".join(failed), directory=directory)


def _read(name: str, source: Any, unit: str, directory: Path) -> Metric:
    try:
        return Metric(name, source.read(directory), unit)
    except (OSError, ValueError) as error:
        return Metric(name, None, unit, str(error))


def _plugin(package: str, model: str, key: str, spec: Mapping[str, Any]) -> Any:
    name = str(spec.get(key))
    folder = Path(__file__).parent.parent / package
    known = [path.stem for path in folder.glob("[!_]*.py")]
    if name not in known:
        raise ValueError(f"unknown {key} `{name}`: {did_you_mean(name, known)}")
    kind = getattr(importlib.import_module(f"toolbox.{package}.{name}"), model)
    return kind.model_validate({field: value for field, value in spec.items() if field != key})
