"""Waits until objects are as they should be: told by watches, and judged anew whenever something has changed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final, TypeVar

from toolbox.kubernetes.api.connection import PATIENCE, Json
from toolbox.kubernetes.api.objects import Objects, Query
from toolbox.kubernetes.api.watching import Watch

_LOOK_SECONDS: Final = 1.0  # what is judged may also depend on the time

T = TypeVar("T")


class Sight:
    """The objects of a query as they are now: what a watch tells."""

    def __init__(self, news: threading.Condition) -> None:
        self._news = news
        self._objects: dict[str, Json] = {}
        self.silence = ""
        """What is said of a server that has not been heard of late; empty while it is."""

    @property
    def objects(self) -> list[Json]:
        """All of them, by name."""
        with self._news:
            return sorted(self._objects.values(), key=lambda found: str(found["metadata"]["name"]))

    def listed(self, objects: Iterator[Json]) -> None:
        """Take all that there is now."""
        fresh = {str(found["metadata"]["uid"]): found for found in objects}
        with self._news:
            self._objects, self.silence = fresh, ""
            self._news.notify_all()

    def changed(self, kind: str, found: Json) -> None:
        """Take a change."""
        uid = str(found["metadata"]["uid"])
        with self._news:
            self.silence = ""
            if kind == "DELETED":
                self._objects.pop(uid, None)
            else:
                self._objects[uid] = found
            self._news.notify_all()

    def away(self, seconds: float, reason: str) -> None:
        """Take note of a server that is not heard."""
        self.silence = f"nothing has been heard of the cluster for {seconds:.0f} s: {reason}"


class View:
    """What is looked at together."""

    def __init__(self, count: int) -> None:
        self._news = threading.Condition(threading.RLock())
        self.sights = tuple(Sight(self._news) for _ in range(count))

    @property
    def silence(self) -> str:
        """What is said of a server that has not been heard of late; empty while it is."""
        return next((sight.silence for sight in self.sights if sight.silence), "")

    def until(self, judge: Callable[[], T | None], seconds: float) -> T | None:
        """Return the first judgement that is not None; None where there is none in time.

        Args:
            judge: is asked at once, after each change, and now and then.
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
def looking(objects: Objects, *queries: Query | None, patience: float = PATIENCE) -> Iterator[View]:
    """Watch the objects of some queries. The view has a sight of each; for None it sees nothing.

    Args:
        patience: how long the server may be away in the beginning, in seconds.

    Raises:
        StepError: they cannot be listed.
    """
    view = View(len(queries))
    with ExitStack() as stack:
        for query, sight in zip(queries, view.sights, strict=True):
            if query is None:
                continue
            watch = Watch(objects.cluster, query, sight)
            stack.callback(watch.close)
            watch.start(patience)
        yield view
