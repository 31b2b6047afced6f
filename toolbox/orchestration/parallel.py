"""Runs functions in parallel threads, all of which have ended when the `with` block ends."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from toolbox.ground.model.errors import Cancelled, SeveralErrors
from toolbox.ground.model.events import StepKind
from toolbox.ground.system import cancellation, signals
from toolbox.ground.system.cancellation import CancelScope
from toolbox.ground.system.context_values import ContextValue
from toolbox.orchestration import session
from toolbox.records.runs import steps
from toolbox.records.runs.steps import Step

region: Final[ContextValue[str]] = ContextValue("parallel_region")
"""The name of the parallel region that the current code runs in, also in threads that run in a copy of its context."""


@dataclass
class Parallel:
    """Collects tasks with `delayed`, and runs them when the `with` block ends, each in its own thread and step.

    The first failure cancels the other tasks: their processes get SIGTERM, then SIGKILL, and tasks that have not
    started do not start. After all tasks have ended, `SeveralErrors` is raised with all failures, the earliest first.

    Args:
        name: the name of the region, for its directory and for messages.
        exit_on_exception: cancel the other tasks on the first failure; if False, they run to their end.
        dedicated_dir: create a numbered directory for the region, which contains the directories of its tasks.
        max_threads: the number of tasks that run at the same time; all tasks by default.
    """

    name: str
    exit_on_exception: bool = True
    dedicated_dir: bool = True
    max_threads: int | None = None
    _tasks: list[tuple[str, Callable[[], object]]] = field(default_factory=list, repr=False)
    _stack: ExitStack = field(default_factory=ExitStack, repr=False)

    def delayed(self, function: Callable[..., object], *args: Any, **kwargs: Any) -> None:
        """Call a function with these arguments when the `with` block ends."""
        self.task(getattr(function, "__name__", type(function).__name__), function, *args, **kwargs)

    def task(self, name: str, function: Callable[..., object], *args: Any, **kwargs: Any) -> None:
        """Do the same as `delayed`, with a name for the step. Use it if you call the same function several times."""
        self._tasks.append((name, partial(function, *args, **kwargs)))

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
        parent = session.step()
        located = [(parent.locate(session.masked(name), StepKind.GROUP), call) for name, call in self._tasks]
        tasks = [(step, call) for step, call in located if not parent.replayed(step)]
        failures: list[BaseException] = []
        with (
            signals.deferred(),
            cancellation.opened() as scope,
            ThreadPoolExecutor(self.max_threads or len(self._tasks), thread_name_prefix=self.name) as pool,
        ):
            try:
                futures = [
                    pool.submit(contextvars.copy_context().run, _run_task, step, call, scope) for step, call in tasks
                ]
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
            done, pending = wait(pending, timeout=signals.WAIT_SECONDS, return_when=FIRST_COMPLETED)
            signals.check()  # signals are deferred, because a handler that raises inside `wait` could leave locks held
            failures += [error for future in done if (error := future.exception()) is not None]
            if failures and self.exit_on_exception:
                scope.cancel(f"another task of `{self.name}` failed")
        return failures


def _run_task(step: Step, call: Callable[[], object], scope: CancelScope) -> None:
    with steps.opened(step.name, kind=step.kind, located=step):
        scope.check()
        call()
