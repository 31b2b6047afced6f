"""Calls a function for several workers at the same time."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Final, TypeVar

from toolbox.ground.model.errors import Cancelled
from toolbox.ground.system import cancellation, signals
from toolbox.ground.system.cancellation import CancelScope

Item = TypeVar("Item")
Result = TypeVar("Result")
MAX_CONNECTIONS: Final = 32
"""How many workers are reached at the same time."""


def for_each(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Call a function with each item, in parallel threads, and return the results in the order of the items.

    If a call raises an error, or a signal arrives, the processes of the other calls are ended, and the first error is
    raised.
    """
    if not items:
        return []
    with (
        signals.deferred(),
        cancellation.opened() as scope,
        ThreadPoolExecutor(min(MAX_CONNECTIONS, len(items)), thread_name_prefix="workers") as pool,
    ):
        try:
            tasks = [pool.submit(contextvars.copy_context().run, function, item) for item in items]
            errors = _errors(tasks, scope)
        except BaseException as error:
            scope.cancel(str(error))
            raise
        if errors:
            raise next((error for error in errors if not isinstance(error, Cancelled)), errors[0])
        return [task.result() for task in tasks]


def _errors(tasks: Sequence[Future[Result]], scope: CancelScope) -> list[BaseException]:
    """Wait for all tasks, and return their errors, the earliest first. The first error cancels the other tasks."""
    errors: list[BaseException] = []
    pending = set(tasks)
    while pending:
        done, pending = wait(pending, timeout=signals.WAIT_SECONDS, return_when=FIRST_COMPLETED)
        signals.check()  # signals are deferred, because a handler that raises inside `wait` could leave locks held
        errors += [error for task in done if (error := task.exception()) is not None]
        if errors:
            scope.cancel(f"another worker failed: {errors[0]}")
    return errors
