"""Watches objects of one kind: lists them, watches them, and lists them again if the server has dropped the version.

A watch uses one thread and one connection for any number of objects (the Kubernetes API concepts, "Efficient detection
of changes"). It stores no objects: its handler keeps the objects that it needs.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Protocol

from toolbox.kubernetes.api.connection import ApiError, Cluster, Json, Unavailable, shut
from toolbox.kubernetes.api.objects import Query
from toolbox.model import backoff
from toolbox.model.errors import Cancelled, StepError

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse

log = logging.getLogger(__name__)

# Seconds to connect, and to wait for an event: the server sends a bookmark every minute.
_STREAM_TIMEOUTS: Final = (5.0, 90.0)
_LONGEST_SECONDS: Final = 300  # after at most this time the server ends a watch request
_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 5.0
_LIST_TRIES: Final = 3
_LIST_SECONDS: Final = 10.0  # enough for a server that has just started and lists many objects


class EventHandler(Protocol):
    """The handler of a watch. The thread of the watch calls its methods."""

    def listed(self, objects: Iterator[Json]) -> None:
        """Handle the complete list of objects: objects that are not in the list are deleted."""

    def changed(self, kind: str, found: Json) -> None:
        """Handle an object that was `ADDED`, `MODIFIED` or `DELETED`."""

    def unreachable(self, seconds: float, reason: str) -> None:
        """Handle a server that has sent nothing for `seconds`."""


class Watch:
    """A watch, which lasts from `start` to `close`.

    Args:
        query: the objects to watch.
        told: the handler of the changes.
    """

    def __init__(self, cluster: Cluster, query: Query, told: EventHandler) -> None:
        self._cluster = cluster
        self._query = query
        self._told = told
        self._version = ""
        self._heard = time.monotonic()
        self._is_closed = threading.Event()
        self._response: BaseHTTPResponse | None = None
        self._thread = threading.Thread(target=self._run, name=f"watch-{cluster.label}", daemon=True)

    def start(self, timeout: float) -> None:
        """List the objects, and watch for changes from then on.

        Raises:
            StepError: the objects cannot be listed.
        """
        self._list(timeout)
        self._thread.start()

    def close(self) -> None:
        """End the watch."""
        self._is_closed.set()
        if (response := self._response) is not None:
            shut(response)
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=_LONGEST_PAUSE)

    def _run(self) -> None:
        tries = 0
        while not self._is_closed.is_set():
            before = self._heard
            try:
                if not self._version:
                    self._list(_LIST_SECONDS)
                self._watch()
            except ApiError as error:
                if error.is_too_old:
                    self._version = ""
                else:
                    self._lose(error)
            except (StepError, Cancelled, OSError) as error:
                self._lose(error)
            except Exception as error:  # without a restart, the handler would wait for ever
                log.exception("the watch on %s failed; starting it again", self._cluster.label)
                self._version = ""
                self._lose(error)
            tries = 0 if self._heard > before else tries + 1
            if not self._is_closed.is_set():
                self._is_closed.wait(backoff.pause(tries, first=_FIRST_PAUSE, most=_LONGEST_PAUSE))

    def _lose(self, error: BaseException) -> None:
        if not self._is_closed.is_set():
            self._told.unreachable(time.monotonic() - self._heard, str(error))

    def _list(self, timeout: float) -> None:
        """Pass the list of objects to the handler. Start again if the list expires between two pages.

        Raises:
            StepError: the objects cannot be listed.
        """
        for _ in range(_LIST_TRIES):
            try:
                self._list_once(timeout)
            except ApiError as error:
                if not error.is_too_old:
                    raise
            else:
                return
        raise Unavailable(f"{self._cluster.label}: the list expired {_LIST_TRIES} times before it was complete")

    def _list_once(self, timeout: float) -> None:
        pages = self._pages(timeout)
        self._told.listed(pages)
        for _ in pages:  # the handler may not have read all objects
            pass
        self._heard = time.monotonic()

    def _pages(self, timeout: float) -> Iterator[Json]:
        page = ""
        while True:
            answer = self._cluster.ask("GET", self._query.path, query=self._query.page(page), timeout=timeout)
            yield from answer.get("items") or ()
            page = str(answer["metadata"].get("continue") or "")
            if not page:
                self._version = answer["metadata"]["resourceVersion"]
                return

    def _watch(self) -> None:
        import orjson
        from urllib3.exceptions import HTTPError, ReadTimeoutError

        # A random time, so that the watches of a run don't all restart in the same second.
        seconds = random.randint(_LONGEST_SECONDS // 2, _LONGEST_SECONDS)  # noqa: S311  # needs no secure random number
        asked = self._query.chosen(
            watch=True, resourceVersion=self._version, allowWatchBookmarks=True, timeoutSeconds=seconds
        )
        response = self._response = self._cluster.stream(self._query.path, asked, _STREAM_TIMEOUTS)
        try:
            if self._is_closed.is_set():
                return
            self._heard = time.monotonic()
            for line in lines(response):
                self._take(orjson.loads(line))
            self._heard = time.monotonic()  # the server was available until now, even if it sent no events
        except ReadTimeoutError:
            return  # the next request finds out whether the server is available
        except (OSError, ValueError, HTTPError) as error:
            self._heard = time.monotonic()
            raise Unavailable(f"{self._cluster.label}: the watch was interrupted: {error}") from error
        finally:
            self._response = None
            _discard(response)

    def _take(self, event: Json) -> None:
        kind, found = str(event["type"]), event["object"]
        if kind == "ERROR":
            raise ApiError(str(found.get("message")), status=int(found.get("code", 0)), reason=str(found.get("reason")))
        self._heard = time.monotonic()
        self._version = found["metadata"]["resourceVersion"]
        if kind != "BOOKMARK":
            self._told.changed(kind, found)


def lines(response: BaseHTTPResponse) -> Iterator[bytes]:
    """Yield the lines of a response as they arrive. The last line may lack its line end."""
    held = b""
    for piece in response.stream(1 << 16, decode_content=False):
        *whole, held = (held + piece).split(b"\n")
        yield from whole
    if held:
        yield held


def _discard(response: BaseHTTPResponse) -> None:
    """Close a response that was not read to its end, and its connection, which cannot be used again."""
    response.close()
    response.release_conn()
