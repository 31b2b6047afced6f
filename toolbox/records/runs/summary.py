"""Writes `summary.json`, the state of a run for programs."""

from __future__ import annotations

import logging
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from toolbox.ground.model.cases import CaseOutcome, CaseReport
from toolbox.ground.model.errors import describe
from toolbox.ground.model.events import CheckJudged, MetricMeasured
from toolbox.ground.model.resources import OpenResource
from toolbox.ground.system import filesystem
from toolbox.records.runs import run_reader
from toolbox.records.runs.layout import RunDirectory
from toolbox.records.runs.run_state import RunState, StepState

log = logging.getLogger(__name__)


def as_json(run: RunState) -> dict[str, Any]:
    """Return the content of `summary.json`."""
    end = run.finished
    return {
        "run": run.run,
        "project": run.project,
        "presets": list(run.presets),
        "state": run.state,
        "verdict": end.verdict if end else None,
        "cause": end.cause if end else None,
        "exit_code": end.exit_code if end else None,
        "message": end.message if end else "",
        "started": run.started.isoformat() if run.started else None,
        "seconds": end.seconds if end else None,
        "directory": str(run.directory),
        **({"missing_phases": list(run.missing_phases)} if run.missing_phases else {}),
        "planned_cells": run.planned_cells,
        "attribution": [str(finding) for finding in run.attribution],
        "damage": [str(damage) for damage in run.damage],
        "open_attempts": [
            {"cell": step.name, "attempt": attempt.attempt, "target": attempt.target}
            for step, attempt in run.open_attempts
        ],
        "clusters": {name: str(cluster) for name, cluster in run.clusters.items()},
        **({"resources": [resource_json(entry) for entry in run.resources]} if run.resources else {}),
        **({"secrets_left": sorted(run.secrets_left)} if run.secrets_left else {}),
        "steps": [_step_json(step) for step in run.steps.values()],
    }


def resource_json(entry: OpenResource) -> dict[str, Any]:
    """Return a remote resource that may exist, for programs."""
    return {
        "kind": entry.resource.kind,
        "name": entry.resource.name,
        **asdict(entry.owner),
        "planned": entry.planned.isoformat(timespec="seconds"),
        "expires": entry.expires.isoformat(timespec="seconds"),
        "created": entry.is_created,
        "kept": entry.is_kept,
        "failure": entry.failure,
        "command": entry.resource.command,
    }


def write(directory: Path) -> RunState:
    """Write the summary of a run to `summary.json`, and return the state of the run."""
    run = run_reader.read(directory)
    filesystem.write_derived(RunDirectory(directory).summary, lambda: filesystem.dump_json(as_json(run)))
    return run


def refresh(directory: Path) -> RunState:
    """Do the same as `write`, but log a warning if the summary cannot be written."""
    try:
        return write(directory)
    except OSError as error:
        log.warning("%s of this run could not be written: %s", RunDirectory.summary, describe(error))
        return run_reader.read(directory)


def _step_json(step: StepState) -> dict[str, Any]:
    return {
        "step": step.step,
        "name": step.name,
        "kind": step.kind,
        "verdict": step.verdict,
        "cause": step.cause,
        "message": step.message,
        "seconds": step.seconds,
        "counts": step.counts,
        **({"reused_from": step.reused_from} if step.reused_from else {}),
        "checks": [_check_json(check) for check in step.checks],
        "metrics": [_without_step(metric) for metric in step.metrics],
        "cases": [_cases_json(report) for report in step.cases],
        "attempts": [
            {
                "attempt": attempt.attempt,
                "target": attempt.target,
                "host": attempt.host,
                "accelerators": attempt.accelerators,
                "image": attempt.image,
                "verdict": attempt.verdict,
                "cause": attempt.cause,
                "message": attempt.message,
                "seconds": attempt.seconds,
                "paid_seconds": attempt.paid_seconds,
                "waiting": attempt.waiting,
                "abandoned": attempt.is_abandoned,
            }
            for attempt in step.attempts
        ],
    }


def _cases_json(report: CaseReport) -> dict[str, Any]:
    """Return the counts and the failures of the test cases. The JUnit files contain all test cases."""
    return {
        "glob": report.glob,
        **{str(outcome): report.counts.get(outcome, 0) for outcome in CaseOutcome},
        "seconds": report.seconds,
        "failures": [
            {name: value for name, value in asdict(case).items() if name != "text"} for case in report.failures
        ],
    }


def _check_json(event: CheckJudged) -> dict[str, Any]:
    """Return a judgement. It has a cause only if the check names one."""
    return {name: value for name, value in _without_step(event).items() if name != "cause" or value is not None}


def _without_step(event: CheckJudged | MetricMeasured) -> dict[str, Any]:
    return {field.name: getattr(event, field.name) for field in fields(event) if field.name != "step"}
