"""Writes directories of runs that never ran: `journal.jsonl`, `run.json` and `plan.json`."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from toolbox.ground.model.bounds import Direction
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
from toolbox.ground.model.verdicts import Cause, Verdict, exit_code, worst
from toolbox.records.runs import junit_files, run_reader
from toolbox.records.runs.journal import Entry
from toolbox.records.runs.layout import RunDirectory
from toolbox.records.runs.run_state import RunState

START = datetime(2026, 3, 1, 2, 0, tzinfo=UTC)


@dataclass(frozen=True)
class Tried:
    """An attempt of a cell.

    Args:
        metrics: values by metric. All metrics are in seconds, and lower values are better.
        junit: the content of the JUnit file `files/junit.xml`; empty if there is no such file.
    """

    verdict: Verdict | None = Verdict.PASSED
    cause: Cause | None = None
    message: str = ""
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    checks: Sequence[CheckJudged] = ()
    target: str = "local"
    seconds: float = 60.0
    image: str = ""
    junit: str = ""


@dataclass(frozen=True)
class Past:
    """A run of the past.

    Args:
        cells: attempts of each cell, by the cell's labels in the form `model=small,batch=8`.
        targets: targets by name, as in `plan.json`.
        is_over: whether the run has ended.
        is_baseline: whether the run is part of the baseline.
    """

    cells: Mapping[str, Sequence[Tried]]
    project: str = "training"
    run: str = ""
    started: datetime = START
    revision: str | None = "a" * 40
    presets: Sequence[str] = ()
    targets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    quarantined: Sequence[str] = ()
    is_over: bool = True
    is_baseline: bool = True
    message: str = ""

    def write(self, parent: Path) -> Path:
        """Write the run directory below `parent`, and return it."""
        name = self.run or self.started.strftime("%Y%m%d-%H%M%S-test")
        directory = parent / self.project / name
        directory.mkdir(parents=True)
        request: dict[str, Any] = {
            "project": self.project,
            "revision": self.revision,
            "host": "ci-1",
            "user": "ci",
            "versions": {},
        }
        request["baseline"] = self.is_baseline
        (directory / "run.json").write_text(json.dumps(request))
        cells = [
            {"id": identity(cell), "name": cell, "settings": labels(cell), "labels": labels(cell)}
            for cell in self.cells
        ]
        (directory / "plan.json").write_text(json.dumps({"cells": cells, "targets": self.targets}))
        lines = [
            json.dumps({"time": time.isoformat(), "event": type(event).__name__, **dataclasses.asdict(event)})
            for time, event in self._events(name, directory)
        ]
        (directory / "journal.jsonl").write_text("".join(f"{line}\n" for line in lines))
        return directory

    def _events(self, name: str, directory: Path) -> list[tuple[datetime, JournalEvent]]:
        now = self.started
        found: list[tuple[datetime, JournalEvent]] = [
            (now, RunStarted(name, self.project, str(directory), tuple(self.presets))),
            (now, StepStarted("000__test", "test", StepKind.PHASE, key="/test")),
            (now, MatrixPlanned("000__test", len(self.cells), 1)),
        ]
        for number, (cell, attempts) in enumerate(self.cells.items()):
            plain = re.sub(r"[\x00\ud800-\udfff]", "_", cell)
            step = f"000__test/{number:03d}__{plain}"
            key = f"/test/{identity(cell)}"
            found.append((now, StepStarted(step, cell, StepKind.CELL, key=key, fingerprint=f"of {cell}")))
            for attempt, tried in enumerate(attempts, 1):
                found.append((now, AttemptSubmitted(step, attempt, f"{name}-{attempt}", tried.target)))
                now += timedelta(seconds=tried.seconds)
                found += [(now, event) for event in _of_attempt(directory, step, attempt, tried)]
            if (last := attempts[-1]).verdict is not None:
                counts = cell not in self.quarantined
                message = last.message
                ended = StepFinished(
                    step, cell, StepKind.CELL, last.verdict, last.cause, message, tried.seconds, counts
                )
                found.append((now, ended))
        if self.is_over:
            counted = [attempts for cell, attempts in self.cells.items() if cell not in self.quarantined]
            ended_as = [attempts[-1].verdict for attempts in counted]
            verdict = worst((one for one in ended_as if one is not None), Verdict) or Verdict.SKIPPED
            seconds = (now - self.started).total_seconds()
            phase = StepFinished("000__test", "test", StepKind.PHASE, verdict, None, self.message, seconds)
            found.append((now, phase))
            found.append((now, RunFinished(verdict, None, exit_code(verdict), self.message, seconds)))
        return found


def _of_attempt(directory: Path, step: str, attempt: int, tried: Tried) -> list[JournalEvent]:
    events: list[JournalEvent] = [
        MetricMeasured(step, metric, value, "s", "" if value is not None else "no such file", Direction.LOWER)
        for metric, value in tried.metrics.items()
    ]
    events += [dataclasses.replace(check, step=step) for check in tried.checks]
    if tried.junit:
        files = RunDirectory(directory).attempt(step, attempt)
        files.results.mkdir(parents=True)
        (files.results / "junit.xml").write_text(tried.junit)
        events += case_events(step, junit_files.report(files.path, "files/*.xml", FAIL_ON))
    if tried.verdict is not None:
        message, seconds = tried.message, tried.seconds
        ended = AttemptEnded(step, attempt, tried.target, tried.verdict, tried.cause, message, seconds)
        events.append(dataclasses.replace(ended, image=tried.image))
    return events


def folded(events: Iterable[JournalEvent]) -> RunState:
    """Return the state of a run after these events."""
    return run_reader.fold(Entry(START, event) for event in events)


def labels(cell: str) -> dict[str, str]:
    """Return the values of a cell by axis."""
    return dict(part.split("=", 1) for part in cell.split(",")) if "=" in cell else {"cell": cell}


def identity(cell: str) -> str:
    """Return the id of a cell."""
    return hashlib.sha256(cell.encode(errors="surrogatepass")).hexdigest()[:12]
