"""
The bridge between the protocols, which run in an event loop, and the batch, which runs in a thread of its own.

The thread sleeps while there is no job. It looks for new and cancelled jobs before each step, and sends all events of
a step to the event loop together.
"""

from __future__ import annotations

import asyncio
import threading
import time
import traceback
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

from .batching import Batch, Forward, Job
from .generation import EngineError, Event, Failed, Limits, OverloadedError, Request
from .vocabulary import Vocabulary

MAX_JOBS = 1024  # running and waiting ones together
SECONDS_TO_END = 5.0


class Engine:
    """
    Generates texts with a model.

    Args:
        slots: number of jobs that run at the same time.
        most_jobs: number of running and waiting jobs above which requests are refused.

    Attributes:
        failure: a future that ends with an EngineError if the engine cannot work any more.
    """

    def __init__(
        self, model: Forward, vocabulary: Vocabulary, limits: Limits, *, slots: int, most_jobs: int = MAX_JOBS
    ) -> None:
        self.vocabulary = vocabulary
        self.limits = limits
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._loop = asyncio.get_running_loop()
        self._batch = Batch(model, slots)
        self._most_jobs = most_jobs
        self._jobs: dict[Job, tuple[asyncio.Queue[tuple[int, Event]], int]] = {}
        self._changed = threading.Condition()  # guards the following
        self._added: list[Job] = []
        self._removed: list[Job] = []
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    @asynccontextmanager
    async def generate(self, requests: Sequence[Request]) -> AsyncIterator[AsyncIterator[tuple[int, Event]]]:
        """
        Carry out some requests, and yield an iterator of their events, each with the index of its request.

        The iterator ends after the last event of each request. If the block ends earlier, the other requests are
        cancelled.

        Raises the errors of `check_room`. The iterator raises EngineError if a generation fails.
        """
        self.check_room(len(requests))
        queue: asyncio.Queue[tuple[int, Event]] = asyncio.Queue()
        arrival = time.monotonic()
        jobs = [Job(request, self.vocabulary, arrival) for request in requests]
        self._jobs |= {job: (queue, index) for index, job in enumerate(jobs)}
        self._send(added=jobs)
        try:
            yield _until_all_ended(queue, len(jobs))
        finally:
            unfinished = [job for job in jobs if self._jobs.pop(job, None)]
            self._send(removed=unfinished)

    def check_room(self, count: int) -> None:
        """
        Check that some more requests would be accepted now.

        Raises:
            OverloadedError: too many requests are running and waiting.
            EngineError: the engine cannot work any more.
        """
        if self.failure.done():
            self.failure.result()
        if len(self._jobs) + count > self._most_jobs:
            raise OverloadedError(f"the server has {len(self._jobs)} requests, and accepts {self._most_jobs} at a time")

    def fail(self, error: EngineError) -> None:
        """Stop the engine because of an error. May be called from any thread, and more than once."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        self._loop.call_soon_threadsafe(self._end, error)

    def stop(self) -> None:
        """Stop the engine after its current step, and wait some seconds for the end of this step."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        self._thread.join(SECONDS_TO_END)

    def _send(self, added: Iterable[Job] = (), removed: Iterable[Job] = ()) -> None:
        with self._changed:
            self._added += added
            self._removed += removed
            self._changed.notify()

    def _run(self) -> None:
        try:
            while self._exchange():
                events = self._batch.step(time.monotonic())
                self._loop.call_soon_threadsafe(self._deliver, events)
        except EngineError as error:
            self.fail(error)
        except Exception as error:  # noqa: BLE001  # a fault in the engine must not leave its clients waiting
            traceback.print_exc()
            self.fail(EngineError(f"the engine has failed: {error!r}"))

    def _exchange(self) -> bool:
        """Take over the changes of the event loop, and return whether there is something to do, or False to stop."""
        with self._changed:
            while True:
                for job in self._added:
                    self._batch.add(job)
                for job in self._removed:
                    self._batch.remove(job)
                self._added, self._removed = [], []
                if self._stopped or self._batch.has_jobs:
                    return not self._stopped
                self._changed.wait()

    def _deliver(self, events: Iterable[tuple[Job, Event]]) -> None:
        for job, event in events:
            if job in self._jobs:  # not cancelled
                queue, index = self._jobs[job]
                queue.put_nowait((index, event))
                if event.is_last:
                    del self._jobs[job]

    def _end(self, error: EngineError) -> None:
        if not self.failure.done():
            self.failure.set_exception(error)
            self.failure.exception()  # asyncio would report an exception that was never looked at
        self._deliver([(job, Failed(error=error)) for job in self._jobs])


async def _until_all_ended(queue: asyncio.Queue[tuple[int, Event]], count: int) -> AsyncIterator[tuple[int, Event]]:
    while count:
        index, event = await queue.get()
        if isinstance(event, Failed):
            raise event.error
        count -= event.is_last
        yield index, event
