"""Ends and removes the workloads of attempts that this session does not wait for.

A person has given up these attempts, or a resumed run ends before it adopts them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from toolbox.ground.extensions.protocols import Backend, teardown_of
from toolbox.ground.model.clusters import Access
from toolbox.ground.model.errors import Cancelled, StepError, ToolboxError, describe
from toolbox.ground.model.events import AttemptReleased
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.ground.model.workloads import Handle, Workload
from toolbox.ground.system import cancellation
from toolbox.matrix.plan import Plan
from toolbox.records.runs.layout import RunDirectory
from toolbox.records.runs.recorder import Recorder
from toolbox.records.runs.run_state import CellAttempt, StepState

log = logging.getLogger(__name__)

_LONGEST_SECONDS: Final = 30.0
_ANSWER_SECONDS: Final = 10.0
_UNREACHABLE_SECONDS: Final = 5.0  # a failure that took longer means that the target does not answer
_END_SECONDS: Final = 90.0  # long, because some backends can end a workload only after it has started
_POLL_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class RemainingAttempt:
    """An attempt that may still be on its target.

    Args:
        step: the identity of the step of the cell.
        name: the name of the workload.
    """

    step: str
    attempt: int
    name: str
    target: str
    workload: Workload
    directory: Path


def by_target(
    plan: Plan, root: Path, attempts: Iterable[tuple[StepState, CellAttempt]]
) -> dict[str, list[RemainingAttempt]]:
    """Return the attempts whose cells are in the plan, by target.

    Args:
        root: the run directory.
    """
    workloads = {cell.id: cell.workload for cell in plan.cells}
    remaining: dict[str, list[RemainingAttempt]] = {}
    for step, attempt in attempts:
        if attempt.target in plan.targets and step.identity in workloads:
            directory = RunDirectory(root).attempt(step.step, attempt.attempt).path
            workload = workloads[step.identity]
            remaining.setdefault(attempt.target, []).append(
                RemainingAttempt(step.step, attempt.attempt, attempt.name, attempt.target, workload, directory)
            )
    return remaining


def end(plan: Plan, recorder: Recorder, clusters: Mapping[str, Access]) -> None:
    """End all workloads that may be running, and wait until they have ended. A resumed run treats them as cancelled."""
    for target, attempts in by_target(plan, recorder.root, recorder.past.open_attempts).items():
        try:
            with closing(plan.targets[target].open(recorder, clusters)) as backend:
                end_workloads(backend, attempts, wait=2 * _LONGEST_SECONDS)
        except (ToolboxError, Cancelled, OSError) as error:
            log.warning("workloads on %s may still be running: %s", target, describe(error))
    remove(plan, recorder, clusters)


def remove(plan: Plan, recorder: Recorder, clusters: Mapping[str, Access]) -> None:
    """Remove the remains of attempts that a person has given up, from each target that answers."""
    for target, attempts in by_target(plan, recorder.root, recorder.abandoned_attempts()).items():
        try:
            with closing(plan.targets[target].open(recorder, clusters)) as backend:
                discard(backend, attempts, partial(recorder.record, sync=False))
                _teardown_run(backend, recorder)
        except (ToolboxError, Cancelled, OSError) as error:
            log.warning("files of the run may remain on %s: %s", target, describe(error))


def _teardown_run(backend: Backend, recorder: Recorder) -> None:
    """Remove the objects that all attempts of the run share from a target, unless an attempt may still need them."""
    is_needed = recorder.past.open_attempts or recorder.abandoned_attempts()
    if not is_needed and (teardown_run := teardown_of(backend)) is not None:
        teardown_run()


def discard(backend: Backend, attempts: Iterable[RemainingAttempt], removed: Callable[[AttemptReleased], None]) -> None:
    """End the workloads of attempts on one target, and remove their remains. Stop if the target does not answer.

    Args:
        removed: called with the event of each attempt whose remains have been removed.
    """
    for attempt in attempts:
        began = time.monotonic()
        try:
            _discard(backend, attempt)
        except (StepError, Cancelled, OSError) as error:
            log.warning("files of %s may remain on %s: %s", attempt.name, attempt.target, describe(error))
            if isinstance(error, Cancelled) or time.monotonic() - began > _UNREACHABLE_SECONDS:
                return
        else:
            removed(AttemptReleased(attempt.step, attempt.attempt))


def _discard(backend: Backend, attempt: RemainingAttempt) -> None:
    handle = backend.find(_with_short_wait(attempt.workload, _ANSWER_SECONDS), attempt.name, attempt.directory)
    if handle is not None and not backend.poll([handle])[handle].state.is_over:
        backend.cancel(handle)
        if not _have_ended(backend, [handle], _END_SECONDS):
            text = f"the workload has not ended within {_END_SECONDS:.0f} s"
            raise StepError(text, verdict=Verdict.ERROR, cause=Cause.INFRASTRUCTURE)
    backend.release(Handle(attempt.name, attempt.directory))


def end_workloads(backend: Backend, attempts: Iterable[RemainingAttempt], *, wait: float = _ANSWER_SECONDS) -> None:
    """End the workloads of attempts on one target, and wait until they have ended.

    The results of the attempts are collected when the run is resumed.

    Args:
        wait: the number of seconds that the target may take to answer.

    Raises:
        StepError: the target does not answer.
    """
    handles: list[Handle] = []
    for attempt in attempts:
        began = time.monotonic()
        try:
            handle = backend.find(_with_short_wait(attempt.workload, wait), attempt.name, attempt.directory)
            if handle is not None:
                backend.cancel(handle)
                handles.append(handle)
        except StepError as error:
            if time.monotonic() - began > _LONGEST_SECONDS:
                raise  # the target does not answer, and the remaining attempts would take as long
            log.warning("%s may still be running: %s", attempt.name, describe(error))
    _have_ended(backend, handles, _LONGEST_SECONDS)


def _have_ended(backend: Backend, handles: Iterable[Handle], seconds: float) -> bool:
    """Wait until all workloads have ended, at most `seconds`, and return whether they have ended."""
    handles, deadline = list(handles), time.monotonic() + seconds
    while any(not status.state.is_over for status in backend.poll(handles).values()):
        if time.monotonic() > deadline:
            return False
        cancellation.current().sleep(_POLL_SECONDS)
    return True


def _with_short_wait(workload: Workload, seconds: float) -> Workload:
    """Return a workload whose `timeouts.wait` is at most `seconds`."""
    wait = min(seconds, workload.timeouts.wait)
    return replace(workload, timeouts=replace(workload.timeouts, wait=wait))
