"""Waits until all workers of a TPU are ready: SSH answers, and the startup script has ended with status 0."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from toolbox.features.tpu import startup, worker_threads
from toolbox.features.tpu.startup import Startup
from toolbox.features.tpu.workers import Worker
from toolbox.ground.model.errors import StepError
from toolbox.ground.model.foreign_text import clean
from toolbox.ground.model.text import duration, truncate
from toolbox.ground.model.verdicts import Cause
from toolbox.ground.system import cancellation, processes
from toolbox.targets.ssh_machine import Login

_PROBE_SECONDS: Final = 10  # how long one connection waits for the end of the script
_PAUSE: Final = 2.0
_MAX_LINES: Final = 200


def unready_reason(worker: Worker, login: Login, mark: Path, *, wait: int) -> str:
    """Ask a worker once whether it is ready, and return why it is not; empty if it is.

    Args:
        mark: the directory of the step, for the process `ssh`.
        wait: how many seconds the worker may wait for the end of its startup script before it answers.

    Raises:
        StepError: the startup script failed.
    """
    lines: deque[str] = deque(maxlen=_MAX_LINES)
    errors: deque[str] = deque(maxlen=_MAX_LINES)
    processes.run(
        login.command(command=startup.probe(wait)),
        env=processes.environment(mark),
        on_line=lines.append,
        on_error_line=errors.append,
    )
    state = startup.parse(lines)
    if state is None:
        reason = truncate(clean(errors[-1])) if errors else "no answer"
        return f"{worker.name} does not answer by SSH: {reason}"
    if state.status is None:
        return f"{worker.name}: {state.message}"
    if state.status != 0:
        raise _failure(worker, state)
    return ""


def wait_ready(
    workers: Sequence[tuple[Worker, Login]],
    mark: Path,
    *,
    timeout: float,
    report: Callable[[str], None],
    check: Callable[[], None] = lambda: None,
) -> None:
    """Wait until all workers are ready.

    Args:
        report: called with the reason of the first worker that is not ready, whenever it changes.
        check: called between two rounds. It may raise an error to end the wait, for example if the TPU is lost.

    Raises:
        StepError: a startup script failed, or the workers are not ready in time.
    """
    deadline = time.monotonic() + timeout
    waiting, latest = list(workers), ""
    while True:
        reasons = _unready_reasons(waiting, mark, deadline)
        waiting = [each for each, reason in zip(waiting, reasons, strict=True) if reason]
        if not waiting:
            return
        message = next(filter(None, reasons))
        if message != latest:
            report(message)
            latest = message
        left = deadline - time.monotonic()
        if left <= 0:
            text = f"{len(waiting)} of {len(workers)} workers are not ready after {duration(timeout, digits=0)}"
            raise StepError(f"{text}: {message}", cause=Cause.TIMEOUT)
        check()
        cancellation.current().sleep(min(_PAUSE, left))


def _unready_reasons(workers: Sequence[tuple[Worker, Login]], mark: Path, deadline: float) -> list[str]:
    wait = max(0, min(_PROBE_SECONDS, int(deadline - time.monotonic())))
    return worker_threads.for_each(lambda each: unready_reason(*each, mark, wait=wait), workers)


def _failure(worker: Worker, state: Startup) -> StepError:
    output = state.message or "(no output)"
    return StepError(
        f"{worker.name}: the startup script ended with status {state.status}:\n{output}\n"
        f"the whole output is in {startup.DIRECTORY}/output on the worker",
        cause=Cause.CONFIGURATION,
    )
