"""Waits until objects meet a condition, which is tested after each change that a watch reports."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final, TypeVar

from toolbox.features.kubernetes.api.connection import TIMEOUT, Json
from toolbox.features.kubernetes.api.objects import Objects, Query
from toolbox.features.kubernetes.api.watching import Watch

_TEST_SECONDS: Final = 1.0  # the longest time between two tests of a condition, which may depend on the time

T = TypeVar("T")


class WatchedObjects:
    """The current objects of a query, kept up to date by a watch."""

    def __init__(self, changes: threading.Condition) -> None:
        self._changes = changes
        self._objects: dict[str, Json] = {}
        self.silence = ""
        """The error message while the watch cannot reach the server; empty while the watch works."""

    @property
    def objects(self) -> list[Json]:
        """The current objects of the query, sorted by name."""
        with self._changes:
            return sorted(self._objects.values(), key=lambda obj: str(obj["metadata"]["name"]))

    def listed(self, objects: Iterator[Json]) -> None:
        """Replace all objects by a complete list."""
        new_objects = {str(obj["metadata"]["uid"]): obj for obj in objects}
        with self._changes:
            self._objects, self.silence = new_objects, ""
            self._changes.notify_all()

    def changed(self, kind: str, obj: Json) -> None:
        """Add, replace or remove an object that has changed."""
        uid = str(obj["metadata"]["uid"])
        with self._changes:
            self.silence = ""
            if kind == "DELETED":
                self._objects.pop(uid, None)
            else:
                self._objects[uid] = obj
            self._changes.notify_all()

    def unreachable(self, seconds: float, reason: str) -> None:
        """Set `silence`, because the watch cannot reach the server."""
        self.silence = f"the cluster has not answered for {seconds:.0f} s: {reason}"


class View:
    """The objects of several queries that are watched together."""

    def __init__(self, count: int) -> None:
        self._changes = threading.Condition(threading.RLock())
        self.watched = tuple(WatchedObjects(self._changes) for _ in range(count))

    @property
    def silence_note(self) -> str:
        """A note for the end of a message while a watch cannot reach the server; empty while all watches work."""
        silence = next((watched_objects.silence for watched_objects in self.watched if watched_objects.silence), "")
        return f" ({silence})" if silence else ""

    def until(self, judge: Callable[[], T | None], seconds: float) -> T | None:
        """Wait until `judge` returns a result that is not None, and return this result; None after `seconds`.

        Args:
            judge: called at once, after each change, and every second.
        """
        deadline = time.monotonic() + seconds
        with self._changes:
            while (judgement := judge()) is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                self._changes.wait(min(left, _TEST_SECONDS))
            return judgement


@contextmanager
def watching_all(objects: Objects, *queries: Query | None, timeout: float = TIMEOUT) -> Iterator[View]:
    """Watch the objects of several queries.

    Args:
        queries: the queries. For each query, `View.watched` has a `WatchedObjects`, in this order. It stays empty
            for a query that is None.
        timeout: how many seconds the server may be unavailable at the start.

    Raises:
        StepError: the objects cannot be listed.
    """
    view = View(len(queries))
    with ExitStack() as stack:
        for query, watched_objects in zip(queries, view.watched, strict=True):
            if query is None:
                continue
            watch = Watch(objects.cluster, query, watched_objects)
            stack.callback(watch.close)
            watch.start(timeout)
        yield view
