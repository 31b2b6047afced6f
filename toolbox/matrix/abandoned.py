"""Ends workloads of a run that was resumed, and has come to an end before it went on with them."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from toolbox.matrix.plan import Plan
from toolbox.model.clusters import Access
from toolbox.model.errors import Cancelled, StepError, describe
from toolbox.model.workloads import AttemptState, Backend, Handle, TargetContext
from toolbox.runs.past import PastAttempt
from toolbox.runs.recorder import Recorder

log = logging.getLogger(__name__)

_LONGEST_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 0.1


def end(plan: Plan, recorder: Recorder, clusters: Mapping[str, Access]) -> None:
    """Have every workload end that may be running, and wait for it. The run finds them cancelled when it goes on.

    Args:
        clusters: how to reach the clusters that the run has.
    """
    waiting: dict[str, list[tuple[PastAttempt, Path]]] = {}
    for step in recorder.past.cells():
        latest = step.attempts[-1] if step.is_open and step.attempts else None
        if latest is not None and latest.ended is None and latest.submitted.target in plan.targets:
            directory = recorder.root / step.started.step / f"attempt-{latest.submitted.attempt}"
            waiting.setdefault(latest.submitted.target, []).append((latest, directory))
    for target, attempts in waiting.items():
        context = TargetContext(
            target,
            recorder.root.name,
            recorder.root / ".targets" / target,
            {},
            recorder.redactor.secrets,
            _nobody,
            clusters,
        )
        with ExitStack() as stack:
            backend = plan.targets[target].description.open(context)
            stack.callback(backend.close)
            try:
                _end(backend, {attempt.submitted.name: directory for attempt, directory in attempts})
            except (StepError, Cancelled, OSError) as error:
                log.warning("workloads on %s may be running still: %s", target, describe(error))


def _end(backend: Backend, names: Mapping[str, Path]) -> None:
    handles: list[Handle] = []
    for name, directory in names.items():
        began = time.monotonic()
        try:
            if (handle := backend.find(name, directory)) is not None:
                backend.cancel(handle)
                handles.append(handle)
        except StepError as error:
            if time.monotonic() - began > _LONGEST_SECONDS:
                raise  # the target is away: each of the others would take as long to say so
            log.warning("%s may be running still: %s", name, describe(error))
    deadline = time.monotonic() + _LONGEST_SECONDS
    while time.monotonic() < deadline:
        if all(status.state is not AttemptState.RUNNING for status in backend.poll(handles).values()):
            return
        time.sleep(_LOOK_SECONDS)


def _nobody(_name: str) -> None:
    return
