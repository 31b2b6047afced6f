"""Told what happens to objects of one kind: list, watch, and list again where the server has forgotten where we were.

One thread and one connection, however many objects there are (the Kubernetes API concepts, "Efficient detection of
changes"). Nothing is kept here: who is told keeps what it needs.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Protocol

from toolbox.kubernetes.api.connection import Away, Cluster, Json, Refused, shut
from toolbox.kubernetes.api.objects import Query
from toolbox.model import backoff
from toolbox.model.errors import Cancelled, StepError

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse

log = logging.getLogger(__name__)

# Seconds, to connect and of silence: there is a bookmark each minute.
_TIMEOUT: Final = (5.0, 90.0)
_LONGEST_SECONDS: Final = 300  # of one watch, which the server ends by itself
_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 5.0
_LIST_TRIES: Final = 3
_LIST_SECONDS: Final = 10.0  # for a server that has many to list, and has just been started


class Told(Protocol):
    """Who is told, in the thread of the watch."""

    def listed(self, objects: Iterator[Json]) -> None:
        """Take all that there is now: what is not among it is gone."""

    def changed(self, kind: str, found: Json) -> None:
        """Take an object that was `ADDED`, `MODIFIED` or `DELETED`."""

    def away(self, seconds: float, reason: str) -> None:
        """Learn that nothing has been heard for so long."""


class Watch:
    """One watch, from its start to `close`.

    Args:
        query: which objects.
    """

    def __init__(self, cluster: Cluster, query: Query, told: Told) -> None:
        self._cluster = cluster
        self._query = query
        self._told = told
        self._version = ""
        self._heard = time.monotonic()
        self._is_closed = threading.Event()
        self._response: BaseHTTPResponse | None = None
        self._thread = threading.Thread(target=self._run, name=f"watch-{cluster.label}", daemon=True)

    def start(self, patience: float) -> None:
        """List what there is, and watch from there on.

        Raises:
            StepError: it cannot be listed.
        """
        self._list(patience)
        self._thread.start()

    def close(self) -> None:
        """End it."""
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
            except Refused as error:
                if error.is_too_old:
                    self._version = ""
                else:
                    self._lose(error)
            except (StepError, Cancelled, OSError) as error:
                self._lose(error)
            except Exception as error:  # whoever waits for these objects would wait for ever
                log.exception("the watch on %s has failed, and is begun again", self._cluster.label)
                self._version = ""
                self._lose(error)
            tries = 0 if self._heard > before else tries + 1
            if not self._is_closed.is_set():
                self._is_closed.wait(backoff.pause(tries, first=_FIRST_PAUSE, most=_LONGEST_PAUSE))

    def _lose(self, error: BaseException) -> None:
        if not self._is_closed.is_set():
            self._told.away(time.monotonic() - self._heard, str(error))

    def _list(self, patience: float) -> None:
        """Tell what there is, from its start again where the server forgets it between two pages.

        Raises:
            StepError: it cannot be listed.
        """
        for _ in range(_LIST_TRIES):
            try:
                self._list_once(patience)
            except Refused as error:
                if not error.is_too_old:
                    raise
            else:
                return
        raise Away(f"{self._cluster.label}: the server has forgotten its list {_LIST_TRIES} times before its end")

    def _list_once(self, patience: float) -> None:
        pages = self._pages(patience)
        self._told.listed(pages)
        for _ in pages:  # who was told may have had enough
            pass
        self._heard = time.monotonic()

    def _pages(self, patience: float) -> Iterator[Json]:
        page = ""
        while True:
            answer = self._cluster.ask("GET", self._query.path, query=self._query.page(page), patience=patience)
            yield from answer.get("items") or ()
            page = str(answer["metadata"].get("continue") or "")
            if not page:
                self._version = answer["metadata"]["resourceVersion"]
                return

    def _watch(self) -> None:
        import orjson
        from urllib3.exceptions import HTTPError, ReadTimeoutError

        # Not all watches of a run end, and begin again, in the same second.
        seconds = random.randint(_LONGEST_SECONDS // 2, _LONGEST_SECONDS)  # noqa: S311  # nobody may guess less by it
        asked = self._query.chosen(
            watch=True, resourceVersion=self._version, allowWatchBookmarks=True, timeoutSeconds=seconds
        )
        response = self._response = self._cluster.stream(self._query.path, asked, _TIMEOUT)
        try:
            if self._is_closed.is_set():
                return
            self._heard = time.monotonic()
            for line in lines(response):
                self._take(orjson.loads(line))
            self._heard = time.monotonic()  # it was there until now, however little it had to say
        except ReadTimeoutError:
            return  # whether the server is there is found out by another connection
        except (OSError, ValueError, HTTPError) as error:
            self._heard = time.monotonic()
            raise Away(f"{self._cluster.label}: the watch was broken off: {error}") from error
        finally:
            self._response = None
            _discard(response)

    def _take(self, event: Json) -> None:
        kind, found = str(event["type"]), event["object"]
        if kind == "ERROR":
            raise Refused(str(found.get("message")), status=int(found.get("code", 0)), reason=str(found.get("reason")))
        self._heard = time.monotonic()
        self._version = found["metadata"]["resourceVersion"]
        if kind != "BOOKMARK":
            self._told.changed(kind, found)


def lines(response: BaseHTTPResponse) -> Iterator[bytes]:
    """Yield the lines of an answer as they come, the last one also without its end."""
    held = b""
    for piece in response.stream(1 << 16, decode_content=False):
        *whole, held = (held + piece).split(b"\n")
        yield from whole
    if held:
        yield held


def _discard(response: BaseHTTPResponse) -> None:
    """Close an answer of which not all was read: its connection can serve nobody else."""
    response.close()
    response.release_conn()
