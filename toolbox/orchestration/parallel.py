"""Runs functions side by side, as one structured region: nothing that it started outlives it."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from toolbox.model.errors import Cancelled, SeveralErrors
from toolbox.model.events import StepKind
from toolbox.orchestration import region, session
from toolbox.runs import steps
from toolbox.runs.steps import Place
from toolbox.system import cancellation, signals
from toolbox.system.cancellation import CancelScope

# How often the main thread looks for a signal. A signal that the system hands to another thread
# does not wake it, and a handler that raised inside of `wait` could leave locks held.
_LOOK_SECONDS = 0.1


@dataclass(slots=True)
class _Task:
    name: str
    call: Callable[[], object]
    place: Place | None = None


@dataclass
class Parallel:
    """Collects functions with `delayed`, and runs them when the block ends, each in a thread and a step of its own.

    On the first failure the others are cancelled: their processes get SIGTERM, then SIGKILL, and are waited for;
    what has not begun does not begin. `SeveralErrors` is raised with all failures, the first one first.

    Args:
        name: the name of the region, for its directory and for messages.
        exit_on_exception: False lets the others run to their end before the failures are raised.
        dedicated_dir: give the region a numbered directory of its own, around those of the tasks.
        max_threads: how many tasks run at once; as many as there are when it is left out.
    """

    name: str
    exit_on_exception: bool = True
    dedicated_dir: bool = True
    max_threads: int | None = None
    _tasks: list[_Task] = field(default_factory=list, repr=False)
    _stack: ExitStack = field(default_factory=ExitStack, repr=False)

    def delayed(self, function: Callable[..., object], *args: Any, **kwargs: Any) -> None:
        """Call a function with these arguments when the block ends."""
        self.task(getattr(function, "__name__", type(function).__name__), function, *args, **kwargs)

    def task(self, name: str, function: Callable[..., object], *args: Any, **kwargs: Any) -> None:
        """Do as `delayed`, under a name of its own: where one function runs several times."""
        self._tasks.append(_Task(name, lambda: function(*args, **kwargs)))

    def __enter__(self) -> Self:
        self._stack.enter_context(region.entered(self.name))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stack:
            if error is None and self._tasks:
                with steps.entered(session.step()), self._directory():
                    self._run()

    def _directory(self) -> AbstractContextManager[object]:
        if self.dedicated_dir:
            return steps.opened(session.masked(self.name), kind=StepKind.GROUP)
        return contextlib.nullcontext()

    def _run(self) -> None:
        here = session.step()
        for task in self._tasks:
            task.name = session.masked(task.name)
            task.place = here.place(task.name, StepKind.GROUP)
        tasks = [task for task in self._tasks if task.place and not here.answered(task.place)]
        failures: list[BaseException] = []
        with (
            signals.deferred(),
            cancellation.opened() as scope,
            ThreadPoolExecutor(self.max_threads or len(self._tasks), thread_name_prefix=self.name) as pool,
        ):
            try:
                futures = [pool.submit(contextvars.copy_context().run, _run_task, task, scope) for task in tasks]
                failures = self._wait(futures, scope)
            except BaseException as error:
                scope.cancel(f"`{self.name}` was {error}")
                raise
        if failures:
            failures.sort(key=lambda error: isinstance(error, Cancelled))
            if isinstance(failures[0], Cancelled):
                raise failures[0]
            raise SeveralErrors(f"in `{self.name}`", [e for e in failures if not isinstance(e, Cancelled)])

    def _wait(self, futures: list[Future[None]], scope: CancelScope) -> list[BaseException]:
        failures: list[BaseException] = []
        pending = set(futures)
        while pending:
            done, pending = wait(pending, timeout=_LOOK_SECONDS, return_when=FIRST_COMPLETED)
            signals.check()
            failures += [error for future in done if (error := future.exception()) is not None]
            if failures and self.exit_on_exception:
                scope.cancel(f"another task of `{self.name}` failed")
        return failures


def _run_task(task: _Task, scope: CancelScope) -> None:
    with steps.opened(task.name, kind=StepKind.GROUP, place=task.place):
        scope.check()
        task.call()
