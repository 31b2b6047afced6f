"""Makes the journal of a merged run from the journals of its shards: events in, events out.

The events of each shard keep their times and their order. Each top-level step gets a number that no other shard uses,
and a key of its own, so that no step replaces a step of another shard. A shard without a run, or whose run has not
ended, becomes a step with the verdict `error`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from toolbox.ground.model.events import (
    AttemptEnded,
    JournalEvent,
    MatrixPlanned,
    RunFinished,
    RunStarted,
    SecretLeft,
    ShardMerged,
    StepFinished,
    StepKind,
    StepStarted,
)
from toolbox.ground.model.text import counted, first_of, truncate
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.records.runs import layout, run_verdict
from toolbox.records.runs.journal import Entry
from toolbox.records.runs.run_state import StepState
from toolbox.records.runs.steps import Outcome
from toolbox.records.shards.shard_run import PlannedCell, ShardRun

_FAULT: Final = "shard"  # the name of the directory of a step that stands for a shard, which has no files
_JOBS: Final = "jobs"
_MAX_NAMES: Final = 20
_LONGEST_NAME: Final = 100
_FAILURE: Final = (Verdict.ERROR, Cause.INFRASTRUCTURE)  # of a shard without a result


@dataclass(frozen=True, slots=True)
class MergedJournal:
    """The journal of a merged run.

    Args:
        places: the new name of each top-level directory of each shard, by the number of the shard.
        end: the verdict of the run, which is also the last entry.
    """

    entries: Sequence[Entry]
    places: Mapping[int, Mapping[str, str]]
    end: RunFinished


def merge(
    runs: Sequence[ShardRun], run: str, directory: str, folders: Mapping[int, Sequence[str]], *, jobs_fault: str = ""
) -> MergedJournal:
    """Return the journal of the run that consists of these shards.

    Args:
        runs: the runs of the shards, at most one per shard, in the order of the shards.
        run: the name of the merged run.
        directory: the directory of the merged run.
        folders: the names of the numbered top-level directories of each shard, by the number of the shard.
        jobs_fault: what is wrong although the run of each shard may have passed; empty if nothing is.
    """
    places = _places(runs, folders)
    used = [layout.number_of(name) for each in places.values() for name in each.values()]
    numbers = itertools.count(max(used, default=-1) + 1)
    shards = runs[0].request.shards
    missing = sorted({*range(1, shards + 1)} - {each.request.number for each in runs})
    ends = {_name(each.request.number, shards): _end_of(each) for each in runs}
    entries: list[Entry] = []
    # The last event of the merged run is the latest one, by which the store tells which of two copies is newer.
    for each in sorted(runs, key=lambda shard: shard.ended):
        entries += _of_shard(each, places[each.request.number], next(numbers))
    last = max(each.ended for each in runs)
    for number in missing:
        name, cells = _name(number, shards), _of(number, runs[0].plan.shards)
        fault = _with_cells(f"there is no run of {name}: its job did not start, or was lost", cells)
        ends[name] = _error(fault)
        entries += _fault_step(f"{next(numbers):03d}__{_FAULT}", name, fault, last, cells)
    if jobs_fault:
        ends[_JOBS] = _error(jobs_fault)
        entries += _fault_step(f"{next(numbers):03d}__{_JOBS}", _JOBS, jobs_fault, last, [])
    end = run_verdict.of_shards(ends, max(_seconds(each) for each in runs))
    first = runs[0].request
    begin = RunStarted(run, first.project, directory, tuple(first.presets), revision=first.revision or "")
    started = min(each.started for each in runs)
    return MergedJournal([Entry(started, begin), *entries, Entry(last, end)], places, end)


def _places(runs: Sequence[ShardRun], folders: Mapping[int, Sequence[str]]) -> dict[int, dict[str, str]]:
    """Return the new name of each top-level directory of each shard. The first shard keeps its numbers if possible."""
    number = 0
    places: dict[int, dict[str, str]] = {}
    for run in runs:
        tops = {step.partition("/")[0] for step in run.state.directories} | set(folders.get(run.request.number, ()))
        moved = places[run.request.number] = {}
        for name in sorted(tops, key=lambda name: (layout.number_of(name), name)):
            number = max(number, layout.number_of(name))
            moved[name] = layout.renumbered(name, number)
            number += 1
    return places


def _of_shard(run: ShardRun, places: Mapping[str, str], number: int) -> Iterator[Entry]:
    """Yield the events of a shard, and those that say what has no result.

    Args:
        number: the number of a top-level step, if one is needed.
    """
    request = run.request
    merged = ShardMerged(run.state.run, run.started.isoformat(), request.number, request.shards)
    yield Entry(run.started, merged)
    for entry in run.entries:
        if not isinstance(entry.event, RunStarted | RunFinished):
            yield replace(entry, event=_moved(entry.event, places, request.number))
    fault = _fault(run)
    for event in _ends_of_open_steps(run, fault):
        yield Entry(run.ended, _moved(event, places, request.number))
    step = f"{number:03d}__{_FAULT}"
    planned = max(run.state.planned.values(), default=0)
    without_plan = run.cells if not planned else []
    if fault:
        yield from _fault_step(step, _name(request.number, request.shards), fault, run.ended, without_plan)


def _error(fault: str) -> RunFinished:
    """Return the end of a shard without a result."""
    return run_verdict.finished(Outcome(*_FAILURE, fault), 0.0)


def _fault_step(step: str, name: str, fault: str, time: datetime, cells: Sequence[PlannedCell]) -> Iterator[Entry]:
    """Yield the events of a step that stands for what went wrong with a shard.

    Args:
        name: the name of the shard.
        cells: the cells of the shard, if its run has not planned them.
    """
    kind = StepKind.COMMAND  # reports list commands; a group would be in no table
    yield Entry(time, StepStarted(step, name, kind, key=f"/{name}"))
    if cells:
        yield Entry(time, MatrixPlanned(step, len(cells), 1))
    yield Entry(time, StepFinished(step, name, kind, *_FAILURE, fault, 0.0))


def _moved(event: JournalEvent, places: Mapping[str, str], shard: int) -> JournalEvent:
    """Return an event of a shard with the paths and the keys of the merged run."""
    changes: dict[str, Any] = {}
    if hasattr(event, "step"):
        changes["step"] = _place(event.step, places)
    if isinstance(event, SecretLeft):
        changes["file"] = _place(event.file, places)
    if isinstance(event, StepStarted) and event.key.startswith("/"):
        first, slash, rest = event.key[1:].partition("/")
        changes["key"] = event.key if shard == 1 else f"/{first} (shard {shard}){slash}{rest}"
    return replace(event, **changes)


def _place(path: str, places: Mapping[str, str]) -> str:
    first, slash, rest = path.partition("/")
    return f"{places.get(first, first)}{slash}{rest}"


def _ends_of_open_steps(run: ShardRun, fault: str) -> Iterator[JournalEvent]:
    """Yield the ends of the attempts and the steps that have none, because of a fault. Inner steps first."""
    if not fault:
        return
    for step in reversed(list(run.state.steps.values())):
        if step.verdict is not None:
            continue
        message = f"the step has no result: {fault.partition(chr(10))[0]}"
        if step.attempts and step.attempts[-1].is_open:
            yield _end_of_attempt(step, message, run.ended)
        seconds = _between(step.started, run.ended)
        yield StepFinished(step.step, step.name, step.kind, Verdict.CANCELLED, Cause.INTERRUPTED, message, seconds)


def _end_of_attempt(step: StepState, message: str, ended: datetime) -> AttemptEnded:
    """Return the end of an attempt. It is charged at least until the last event of the run."""
    attempt = step.attempts[-1]
    seconds = _between(attempt.submitted, ended)
    return AttemptEnded(
        step.step, attempt.attempt, attempt.target, Verdict.CANCELLED, Cause.INTERRUPTED, message, seconds
    )


def _fault(run: ShardRun) -> str:
    """Return why the record of a shard is no basis for a verdict; empty if it is one."""
    of_shard = f"of {_name(run.request.number, run.request.shards)}"
    ended = {step.identity for step in run.state.cells if step.verdict is not None}
    without_end = [cell for cell in run.cells if cell.id not in ended]
    if run.state.finished is None:
        text = f"the run {run.state.run} {of_shard} has not ended: it was killed, or its machine was lost"
        return _with_cells(text, without_end)
    if run.damage:
        return f"the journal of the run {run.state.run} {of_shard} is damaged: {run.damage}"
    if run.state.contradiction:
        return f"the run {run.state.run} {of_shard} has no verdict: {run.state.contradiction}"
    if run.state.finished.verdict.is_pass and without_end and run.request.has_tests:
        text = f"the run {run.state.run} {of_shard} is `{run.state.finished.verdict}` without its cells"
        return _with_cells(text, without_end)
    return ""


def _with_cells(text: str, cells: Sequence[PlannedCell]) -> str:
    """Return a text with the names of cells that have no result."""
    if not cells:
        return text
    names = first_of([truncate(" ".join(cell.name.split()), _LONGEST_NAME) for cell in cells], _MAX_NAMES)
    return f"{text}\n{counted(len(cells), 'cell')} not run: {', '.join(names)}"


def _of(number: int, cells: Sequence[PlannedCell]) -> list[PlannedCell]:
    return [cell for cell in cells if cell.shard == number]


def _end_of(run: ShardRun) -> RunFinished:
    if (fault := _fault(run)) or run.state.finished is None:
        return _error(fault)
    return run.state.finished


def _name(number: int, shards: int) -> str:
    return f"shard {number}/{shards}"


def _seconds(run: ShardRun) -> float:
    """Return how long a shard took."""
    seconds = run.state.finished.seconds if run.state.finished is not None else run.state.seconds
    return seconds if math.isfinite(seconds) and seconds >= 0 else 0.0


def _between(begin: datetime | None, end: datetime) -> float:
    return max(0.0, round((end - begin).total_seconds(), 3)) if begin is not None else 0.0
