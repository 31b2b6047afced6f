"""Writes directories of runs with a matrix, for the tests of their reports."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from toolbox.ground.model.cases import FAIL_ON
from toolbox.ground.model.events import (
    AttemptEnded,
    AttemptSubmitted,
    CheckJudged,
    JournalEvent,
    MatrixPlanned,
    MetricMeasured,
    RunFinished,
    RunStarted,
    StepFinished,
    StepKind,
    StepStarted,
    case_events,
)
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.records.runs import junit_files, layout, run_reader
from toolbox.records.runs.journal import Journal
from toolbox.records.runs.layout import RunDirectory
from toolbox.records.runs.run_state import RunState

PHASE = "000__test"
# A text that would be executed or displayed as something else if a page did not escape it.
HOSTILE = (
    "<script>document.title='owned'</script>\"'><img src=x onerror=\"document.title='owned'\"></title></script>&amp;"
)


def suite(passed: int, *, failing: str = "", seconds: float = 0.25) -> str:
    """Return a JUnit file with test cases that passed, and one that failed with this name and message."""
    cases = [f'<testcase classname="tests.unit" name="test_{n}" time="{seconds * n}"/>' for n in range(passed)]
    if failing:
        name, text = quoteattr(failing), escape(failing)
        cases.append(
            f"<testcase classname={name} name={name} time='1'><failure message={name}>{text}</failure></testcase>"
        )
    return f"<testsuites><testsuite name='s'>{''.join(cases)}</testsuite></testsuites>"


class Run:
    """A run whose files are written without executing the run. `directory` is the run directory."""

    def __init__(self, directory: Path, *, presets: tuple[str, ...] = (), project: str = "grid") -> None:
        self.directory = directory
        self.plan: list[dict[str, Any]] = []
        self.events: list[JournalEvent] = [
            RunStarted(directory.name, project, str(directory), presets, 1, "here"),
            StepStarted(PHASE, "test", StepKind.PHASE, "", "/test"),
        ]

    def planned(self, *, name: str = "", **labels: object) -> dict[str, Any]:
        """Add a cell that does not begin to the plan, and return it."""
        texts = {axis: str(label) for axis, label in labels.items()}
        name = name or ",".join(f"{axis}={label}" for axis, label in texts.items())
        cell = {"id": f"{len(self.plan):012x}", "name": name, "settings": labels, "labels": texts}
        self.plan.append({**cell, "command": ["train", "--fast"]})
        return cell

    def cell(
        self,
        verdict: Verdict | None = Verdict.PASSED,
        *,
        name: str = "",
        message: str = "",
        log: bytes | str | None = "begin\nend\n",
        checks: list[tuple[bool | None, str, str, int | None]] | None = None,
        metrics: Sequence[tuple[str, float | None, str, str]] = (("step_time", 0.25, "s", ""),),
        is_quarantined: bool = False,
        junit: str = "",
        **labels: object,
    ) -> Path:
        """Add a cell that has begun, and return the directory of its attempt.

        Args:
            verdict: verdict of the cell; None if the cell has not ended.
            checks: for each check, whether it passed, its message, and the file and line of its evidence.
            metrics: for each metric, its name, value, unit, and the reason for a missing value.
            is_quarantined: whether the cell is in quarantine, so that its verdict does not count.
            junit: the content of a JUnit file that a check has read.
        """
        cell = self.planned(name=name, **labels)
        step = f"{PHASE}/{len(self.plan):03d}__{layout.safe_name(cell['name'])}"
        attempt = self.directory / step / "attempt-1"
        attempt.mkdir(parents=True)
        if log is not None:
            (attempt / "stdout.log").write_bytes(log.encode() if isinstance(log, str) else log)
        cause = None if verdict is None or verdict.is_pass else Cause.CHECK
        self.events += [
            StepStarted(step, cell["name"], StepKind.CELL, "", f"/test/{cell['id']}"),
            AttemptSubmitted(step, 1, "workload", "local"),
        ]
        if verdict is not None:
            self.events += [MetricMeasured(step, *metric) for metric in metrics]
            self.events += [CheckJudged(step, "log", *check) for check in checks or []]
            if junit:
                (attempt / "files").mkdir()
                (attempt / "files" / "junit.xml").write_text(junit)
                self.events += case_events(step, junit_files.report(attempt, "files/*.xml", FAIL_ON))
            self.events += [
                AttemptEnded(step, 1, "local", verdict, cause, message, 1.0),
                StepFinished(
                    step, cell["name"], StepKind.CELL, verdict, cause, message, 1.0, counts=not is_quarantined
                ),
            ]
        return attempt

    def write(self, verdict: Verdict | None = Verdict.PASSED, message: str = "") -> RunState:
        """Write the files of the run, and return its state. A run without a verdict has not ended."""
        planned = MatrixPlanned(PHASE, len(self.plan), 2)
        events = [*self.events[:2], planned, *self.events[2:]]
        if verdict is not None:
            cause = None if verdict.is_pass else Cause.CHECK
            events += [
                StepFinished(PHASE, "test", StepKind.PHASE, verdict, cause, message, 2.0),
                RunFinished(verdict, cause, 0 if verdict.is_pass else 1, message, 2.0),
            ]
        self.directory.mkdir(parents=True, exist_ok=True)
        with Journal(self.directory) as journal:
            for event in events:
                journal.append(event, sync=False)
        if self.plan:
            plan = {"total": len(self.plan), "notes": [], "cells": self.plan}
            (RunDirectory(self.directory).plan).write_text(json.dumps(plan), encoding="utf-8")
        return run_reader.read(self.directory)


def hostile(directory: Path) -> RunState:
    """Write a run in which all texts are hostile, and return its state."""
    run = Run(directory, presets=(HOSTILE,), project=HOSTILE)
    run.cell(
        Verdict.FAILED,
        name=HOSTILE,
        message=HOSTILE,
        log=f"one\n{HOSTILE}\n\x1b[31mthree\n",
        checks=[(False, HOSTILE, "stdout.log", 2)],
        junit=suite(30, failing=HOSTILE),
        model=HOSTILE,
        batch=8,
    )
    attempt = run.cell(model="small", batch=HOSTILE)
    (attempt / "files").mkdir()
    (attempt / "files" / "javascript:alert(1)").touch()
    (attempt / HOSTILE.replace("/", "")).touch()
    result = run.write(Verdict.FAILED, HOSTILE)
    request = {
        "host": HOSTILE,
        "revision": HOSTILE,
        "argv": [HOSTILE],
        "config_file": HOSTILE,
        "overrides": {"a": HOSTILE},
        "changes": [change("a", HOSTILE, f"preset {HOSTILE}", "x.yaml:1")],
    }
    (directory / "run.json").write_text(json.dumps(request), encoding="utf-8")
    (directory / "config.yaml").write_text(f"a: {json.dumps(HOSTILE)}\n", encoding="utf-8")
    return result


def change(path: str, value: str, by: str, where: str = "") -> dict[str, str]:
    """Return a change of the configuration, in the form of `run.json`."""
    return {"path": path, "value": value, "by": by, "where": where, "replaced": "9", "replaced_where": "base.yaml:1"}


QUARANTINE = "in quarantine until 2999-12-31 (ops), so the verdict does not count: issue 9"
REMARK = (
    "speed is 69 tokens/s, below [70, 80], from 7 values by prediction; "
    "bounds from fewer than 10 values do not fail the check"
)
_BOUND = {"lower": 70.0, "upper": 80.0, "mean": 75.0, "samples": 7, "unit": "tokens/s"}


def remarkable(directory: Path) -> RunState:
    """Write a passed run of four cells: one failed in quarantine, one has a remark, and all have two metrics."""
    run = Run(directory)
    for x in range(4):
        is_kept, speed = x == 1, 69.0 if x == 2 else 75.012345
        run.cell(
            Verdict.FAILED if is_kept else Verdict.PASSED,
            message=f"it is too slow\n{QUARANTINE}" if is_kept else REMARK if x == 2 else "",
            metrics=[
                ("speed", speed, "tokens/s", ""),
                ("memory", None, "", "stdout.log has no 'memory'") if is_kept else ("memory", 8e9, "bytes", ""),
            ],
            is_quarantined=is_kept,
            x=x,
        )
        run.plan[-1]["bounds"] = {"speed": _BOUND if x else {**_BOUND, "upper": None, "mean": None}}
    return run.write()


def failing(directory: Path) -> RunState:
    """Write a run of 2 x 2 x 2 cells, one of which failed with its evidence in the middle of its log."""
    run = Run(directory, presets=("smoke",))
    log = "".join(f"line {number}\n" for number in range(1, 31))
    for model in ("small", "large"):
        for batch in (8, 16):
            for precision in ("float32", "float64"):
                is_bad = (model, batch, precision) == ("large", 16, "float64")
                run.cell(
                    Verdict.FAILED if is_bad else Verdict.PASSED,
                    message="log: 'line 20' is in stdout.log:20" if is_bad else "",
                    log=log,
                    checks=[(not is_bad, "it was looked at", "stdout.log", 20)],
                    model=model,
                    batch=batch,
                    precision=precision,
                )
    found = run.write(Verdict.FAILED, "1 cell failed")
    (directory / "config.yaml").write_text("training:\n  steps: 10\n  seed: 0\n", encoding="utf-8")
    request = {"changes": [change("training.steps", "10", "preset smoke", "grid.yaml:3")]}
    (directory / "run.json").write_text(json.dumps(request), encoding="utf-8")
    return found
