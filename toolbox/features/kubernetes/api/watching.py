"""Watches objects of one kind: lists the objects, and then receives their changes.

A watch uses one thread and one connection for any number of objects (see "Efficient detection of changes" in the
Kubernetes documentation). The watch does not store objects, but passes them to its handler.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol, cast

from toolbox.features.kubernetes.api.connection import ApiError, Cluster, Json, Unavailable, shut
from toolbox.features.kubernetes.api.objects import Query
from toolbox.ground.model import backoff
from toolbox.ground.model.errors import Cancelled, StepError

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse

log = logging.getLogger(__name__)

# The timeouts in seconds to connect, and between two events. The server sends at least a bookmark event every minute.
_STREAM_TIMEOUTS: Final = (5.0, 90.0)
_LONGEST_SECONDS: Final = 300  # the server ends a watch request after this time at the latest
_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 5.0
_LIST_TRIES: Final = 3
_LIST_SECONDS: Final = 10.0  # a server that has just started may need several seconds to list many objects
# To wake up for an event costs more than to handle it, and one change in the cluster causes several events. So an event
# that comes after a pause is handled at once, and the next ones are gathered for a moment.
_PAUSE_SECONDS: Final = 0.002
_GATHER_SECONDS: Final = 0.1
_MANAGED: Final = b'"managedFields":[{'


class EventHandler(Protocol):
    """The handler of a watch. The thread of the watch calls its methods."""

    def listed(self, objects: Iterator[Json]) -> None:
        """Handle the complete list of objects. Objects that are not in the list have been deleted."""

    def changed(self, kind: str, obj: Json) -> None:
        """Handle a changed object; `kind` is `ADDED`, `MODIFIED` or `DELETED`."""

    def unreachable(self, seconds: float, reason: str) -> None:
        """Handle the failure `reason` of a server that has not answered for `seconds`."""


class Watch:
    """A watch of the objects that a query selects.

    Args:
        handler: its methods are called with the list of objects and with each change, in the thread of the watch.
    """

    def __init__(self, cluster: Cluster, query: Query, handler: EventHandler) -> None:
        self._cluster = cluster
        self._query = query
        self._handler = handler
        self._version = ""
        self._last_answer = time.monotonic()
        self._is_closed = threading.Event()
        self._response: BaseHTTPResponse | None = None
        self._thread = threading.Thread(target=self._run, name=f"watch-{cluster.label}", daemon=True)

    def start(self, timeout: float) -> None:
        """List the objects, and start the thread that receives changes.

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
            previous_answer = self._last_answer
            try:
                if not self._version:
                    self._list(_LIST_SECONDS)
                self._watch()
            except ApiError as error:
                if error.is_too_old:
                    self._version = ""
                else:
                    self._report_unreachable(error)
            except (StepError, Cancelled, OSError) as error:
                self._report_unreachable(error)
            except Exception as error:  # start again: without a new start, the handler would wait forever
                log.exception("the watch on %s failed; starting it again", self._cluster.label)
                self._version = ""
                self._report_unreachable(error)
            tries = 0 if self._last_answer > previous_answer else tries + 1
            if not self._is_closed.is_set():
                self._is_closed.wait(backoff.pause(tries, first=_FIRST_PAUSE, most=_LONGEST_PAUSE))

    def _report_unreachable(self, error: BaseException) -> None:
        if not self._is_closed.is_set():
            self._handler.unreachable(time.monotonic() - self._last_answer, str(error))

    def _list(self, timeout: float) -> None:
        """Pass the list of objects to the handler. If the list expires between two pages, list the objects again.

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
        objects = self._objects(timeout)
        self._handler.listed(objects)
        for _ in objects:  # read also the last page, which contains the version to watch from
            pass
        self._last_answer = time.monotonic()

    def _objects(self, timeout: float) -> Iterator[Json]:
        version = ""
        for objects, metadata in self._query.pages(self._cluster, timeout):
            yield from objects
            version = metadata["resourceVersion"]
        self._version = version

    def _watch(self) -> None:
        from urllib3.exceptions import HTTPError, ReadTimeoutError

        # The time is random, so that the watches of a run restart at different times.
        seconds = random.randint(_LONGEST_SECONDS // 2, _LONGEST_SECONDS)  # noqa: S311  # needs no secure random number
        query = self._query.parameters(
            watch=True, resourceVersion=self._version, allowWatchBookmarks=True, timeoutSeconds=seconds
        )
        response = self._response = self._cluster.stream(self._query.path, query, _STREAM_TIMEOUTS)
        try:
            if self._is_closed.is_set():
                return
            self._last_answer = read = time.monotonic()
            for line in lines(response):
                is_after_pause = time.monotonic() - read > _PAUSE_SECONDS
                self._handle(parsed(line))
                if is_after_pause:
                    self._is_closed.wait(_GATHER_SECONDS)
                read = time.monotonic()
            self._last_answer = time.monotonic()  # the server was available until now, even without events
        except ReadTimeoutError:
            return  # the next request will show whether the server is available
        except (OSError, ValueError, HTTPError) as error:
            self._last_answer = time.monotonic()
            raise Unavailable(f"{self._cluster.label}: the watch was interrupted: {error}") from error
        finally:
            self._response = None
            _discard(response)

    def _handle(self, event: Json) -> None:
        kind, obj = str(event["type"]), event["object"]
        if kind == "ERROR":
            raise ApiError(str(obj.get("message")), status=int(obj.get("code", 0)), reason=str(obj.get("reason")))
        self._last_answer = time.monotonic()
        self._version = obj["metadata"]["resourceVersion"]
        if kind != "BOOKMARK":
            self._handler.changed(kind, obj)


def parsed(line: bytes) -> Json:
    """Return an event, with no managed fields: nothing reads them, and parsing them takes two thirds of the time.

    The server offers no way to leave them out. Their key cannot be a part of a text, in which quotation marks are
    escaped. If a text in the fields looks like the end of the fields, invalid JSON remains: then the line is parsed
    as it is.
    """
    import orjson

    if (begin := line.find(_MANAGED)) >= 0 and (end := line.find(b"}]", begin)) >= 0:
        with suppress(orjson.JSONDecodeError):
            return cast("Json", orjson.loads(line[: begin + len(_MANAGED) - 1] + line[end + 1 :]))
    return cast("Json", orjson.loads(line))


def lines(response: BaseHTTPResponse) -> Iterator[bytes]:
    """Yield the lines of a response as they arrive, without line ends."""
    rest = b""
    for piece in response.stream(1 << 16, decode_content=False):
        *whole, rest = (rest + piece).split(b"\n")
        yield from whole
    if rest:
        yield rest


def _discard(response: BaseHTTPResponse) -> None:
    """Close a response that may not be complete, and its connection, which cannot be used again."""
    response.close()
    response.release_conn()
