"""Tracks the progress of a matrix: the number of finished cells, the running cells, and the time left."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from toolbox.ground.model.events import (
    AttemptSubmitted,
    AttemptWaiting,
    DurationsExpected,
    Event,
    MatrixPlanned,
    RunStarted,
    StepFinished,
    StepKind,
    StepStarted,
)
from toolbox.ground.model.text import duration
from toolbox.ground.model.verdicts import Verdict
from toolbox.records.runs.evidence_files import last_line
from toolbox.records.runs.layout import RunDirectory


@dataclass(slots=True)
class _Running:
    name: str
    since: float
    log: Path
    waiting: str = ""


@dataclass(slots=True)
class Progress:
    """The progress of the cells of a run, according to its events."""

    _directory: Path = field(default_factory=Path)
    _planned: int = 0
    _jobs: int = 1
    _earlier: int = 0
    _expected: Mapping[str, float] = field(default_factory=dict)
    _running: dict[str, _Running] = field(default_factory=dict)
    _verdicts: Counter[Verdict] = field(default_factory=Counter)
    _finished: dict[str, float] = field(default_factory=dict)

    @property
    def is_shown(self) -> bool:
        """Whether the run has a matrix with unfinished cells."""
        return self._planned > 0 and self._done < self._planned

    def add(self, event: Event) -> None:
        """Update the progress after an event."""
        match event:
            case RunStarted():
                self._directory = Path(event.directory)
            case MatrixPlanned():
                self._planned, self._jobs, self._earlier = event.cells, event.jobs, event.done
            case DurationsExpected():
                self._expected = event.seconds
            case StepStarted(kind=StepKind.CELL):
                self._running[event.step] = _Running(event.name, time.monotonic(), Path())
            case AttemptSubmitted() if event.step in self._running:
                log = RunDirectory(self._directory).attempt(event.step, event.attempt).stdout
                name = self._running[event.step].name
                self._running[event.step] = _Running(name, time.monotonic(), log)
            case AttemptWaiting() if event.step in self._running:
                self._running[event.step].waiting = event.reason
            case StepFinished(kind=StepKind.CELL):
                self._running.pop(event.step, None)
                self._verdicts[event.verdict] += 1
                self._finished[event.name] = event.seconds

    def is_running(self, step: str) -> bool:
        """Return whether a step is a running cell."""
        return step in self._running

    def headline(self) -> str:
        """Return the line with the counts of cells and the time left."""
        failures = [f"{count} {verdict}" for verdict, count in self._verdicts.items() if not verdict.is_pass]
        waiting = self._planned - self._done - len(self._running)
        parts = [f"{self._done} of {self._planned} done", *failures, f"{len(self._running)} running"]
        left = self._seconds_left()
        time_left = [f"about {duration(left, digits=0)} left"] if left is not None else []
        return "cells: " + ", ".join([*parts, *([f"{waiting} waiting"] if waiting > 0 else []), *time_left])

    def rows(self) -> Iterator[tuple[str, float, str]]:
        """Yield for each running cell its name, its seconds so far, and its last line or why it has not started."""
        now = time.monotonic()
        for running in list(self._running.values()):
            yield running.name, now - running.since, last_line(running.log) or running.waiting

    @property
    def _done(self) -> int:
        return self._earlier + self._verdicts.total()

    def _seconds_left(self) -> float | None:
        """Return an estimate of the time left, from the times of cells in earlier runs; None if no time is known.

        For a cell without earlier times the mean of all known times is used.
        """
        times = [*self._expected.values(), *self._finished.values()]
        if not times:
            return None
        mean = sum(times) / len(times)
        now = time.monotonic()
        remaining = sum(
            max(0.0, self._expected.get(running.name, mean) - (now - running.since))
            for running in list(self._running.values())
        )
        busy = {running.name for running in self._running.values()}
        named = [seconds for name, seconds in self._expected.items() if name not in self._finished and name not in busy]
        waiting = max(0, self._planned - self._done - len(self._running))
        remaining += sum(named[:waiting]) + mean * max(0, waiting - len(named))
        return remaining / max(1, min(self._jobs, waiting + len(busy)))
