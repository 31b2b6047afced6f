"""Waits until objects meet a condition. Watches report changes, and the condition is tested after each change."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final, TypeVar

from toolbox.kubernetes.api.connection import TIMEOUT, Json
from toolbox.kubernetes.api.objects import Objects, Query
from toolbox.kubernetes.api.watching import Watch

_LOOK_SECONDS: Final = 1.0  # test the condition at least this often, because it may depend on the time

T = TypeVar("T")


class WatchedObjects:
    """The current objects of a query, kept up to date by a watch."""

    def __init__(self, news: threading.Condition) -> None:
        self._news = news
        self._objects: dict[str, Json] = {}
        self.silence = ""
        """The error message while the watch cannot reach the server; empty while the watch works."""

    @property
    def objects(self) -> list[Json]:
        """All objects of the query, sorted by name."""
        with self._news:
            return sorted(self._objects.values(), key=lambda found: str(found["metadata"]["name"]))

    def listed(self, objects: Iterator[Json]) -> None:
        """Replace all objects after a list request."""
        fresh = {str(found["metadata"]["uid"]): found for found in objects}
        with self._news:
            self._objects, self.silence = fresh, ""
            self._news.notify_all()

    def changed(self, kind: str, found: Json) -> None:
        """Add, replace or remove an object that has changed."""
        uid = str(found["metadata"]["uid"])
        with self._news:
            self.silence = ""
            if kind == "DELETED":
                self._objects.pop(uid, None)
            else:
                self._objects[uid] = found
            self._news.notify_all()

    def unreachable(self, seconds: float, reason: str) -> None:
        """Record that the watch cannot reach the server."""
        self.silence = f"the cluster has not answered for {seconds:.0f} s: {reason}"


class View:
    """The objects of several queries that are watched together."""

    def __init__(self, count: int) -> None:
        self._news = threading.Condition(threading.RLock())
        self.watched = tuple(WatchedObjects(self._news) for _ in range(count))

    @property
    def silence(self) -> str:
        """The error message while a watch cannot reach the server; empty while all watches work."""
        return next((watched_objects.silence for watched_objects in self.watched if watched_objects.silence), "")

    def until(self, judge: Callable[[], T | None], seconds: float) -> T | None:
        """Return the first result of `judge` that is not None; None after a timeout.

        Args:
            judge: called at once, after each change, and every second.
            seconds: the timeout.
        """
        deadline = time.monotonic() + seconds
        with self._news:
            while (judgement := judge()) is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                self._news.wait(min(left, _LOOK_SECONDS))
            return judgement


@contextmanager
def watching_all(objects: Objects, *queries: Query | None, timeout: float = TIMEOUT) -> Iterator[View]:
    """Watch the objects of several queries.

    Args:
        queries: the queries. The view has one `WatchedObjects` for each, in this order, and leaves it empty for None.
        timeout: the number of seconds for which the server may be unavailable at the start.

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
