"""The live copy of a container's log, for people: what `kubectl logs` prints, both streams in one file.

The copy is not complete for certain: a node drops the beginning of a long log, and lines may be lost when a connection
breaks. No check may read it. When the workload has ended, `pod_results` replaces it with the logs that the agent wrote.
"""

from __future__ import annotations

import logging
import math
import re
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from toolbox.features.kubernetes.api.connection import ApiError, Cluster, Unavailable, fault_of, shut
from toolbox.features.kubernetes.api.objects import POD, Objects
from toolbox.features.kubernetes.pods.pod_state import WORKLOAD
from toolbox.ground.model import backoff
from toolbox.ground.model.errors import StepError
from toolbox.ground.model.workloads import LOG_BYTES
from toolbox.ground.system import filesystem
from toolbox.targets.agent.log_files import END_BYTES
from toolbox.targets.agent.pod import HOLDING

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse

log = logging.getLogger(__name__)

_FIRST_PAUSE: Final = 0.25
_LONGEST_PAUSE: Final = 5.0
# The first and the longest pause after a node has sent the whole log. A busy node reports the end of a container late.
_END_SECONDS: Final = 5.0
_LONGEST_END_SECONDS: Final = 60.0
# Seconds to connect, and between two pieces. After that time without output, the log is requested again.
_STREAM_TIMEOUTS: Final = (5.0, 30.0)
# A node may stop sending when it begins a new log file. The line of a pod that waits must not be missed for long.
_HOLD_TIMEOUTS: Final = (5.0, 15.0)
_LOOK_SECONDS: Final = 5.0
_LAST_LINES: Final = 5
_LAST_BYTES: Final = 5000
_PIECE_BYTES: Final = 1 << 16
_LONGEST_LINE: Final = 1 << 20  # of which the rest is left out
_TIME: Final = re.compile(rb"\d{4}-\d\d-\d\dT\S+")


class LiveCopy:
    """The live copy of one pod's log.

    Args:
        pod: the name of the pod.
        file: the copy. It is overwritten: an earlier session may have left a part of a copy there.
        log_bytes: the limit of each log of the workload.
        may_hold: whether the pod may wait until its logs have been fetched.

    Attributes:
        since: the monotonic time at which the pod was first seen.
        is_followed: whether a thread was started that copies the log.
        is_held: whether the pod waits until its logs have been fetched.
        is_over: whether the pod does not run any more.
        fetching: locked while the logs are fetched.
        due: the monotonic time before which the log is not followed again, because the logs could not be fetched.
        tries: how often the logs could not be fetched.
    """

    def __init__(
        self, cluster: Cluster, pod: str, file: Path, *, log_bytes: int = LOG_BYTES, may_hold: bool = False
    ) -> None:
        self._cluster = cluster
        self._pod = pod
        self.file = file
        self._most = log_bytes + END_BYTES
        self.may_hold = may_hold
        self._timeouts = _HOLD_TIMEOUTS if may_hold else _STREAM_TIMEOUTS
        self._response: BaseHTTPResponse | None = None
        self._last = b""  # the time of the last line that was copied, by the clock of the node
        self._held_at = b""  # the time of the line that requests the logs
        self._refuted = b""  # the time of such a line that the workload itself has printed
        self._is_complete = False  # whether the last request brought the log to its end
        self._size = 0
        self._writing = threading.Lock()
        self._is_closed = threading.Event()
        self.since = time.monotonic()
        self.is_followed = False
        self.is_held = False
        self.is_over = False
        self.fetching = threading.Lock()
        self.due = 0.0
        self.tries = 0

    def go_on(self) -> None:
        """Follow the log again: the workload itself has printed the line that requests the logs."""
        self._refuted, self.is_held = self._held_at, False

    def close(self) -> None:
        """Stop copying. When this returns, nothing more is written to the copy."""
        with self._writing:
            self._is_closed.set()
        if (response := self._response) is not None:
            shut(response)

    def follow(self, must_stop: Callable[[], bool], timeout: Callable[[], float] = lambda: math.inf) -> bool:
        """Copy new lines until the copy is closed or `must_stop` returns True.

        Args:
            must_stop: checked after each piece of the log and after each request.
            timeout: returns the number of seconds after which a request that brings nothing is ended.

        Returns:
            whether there may be more to copy.
        """
        tries = 0
        while not (self._is_closed.is_set() or self.is_held):
            before = self._last
            if not self._try_to_read(must_stop, timeout()):
                return False
            if must_stop():
                return not self.is_held
            tries = 0 if self._last > before else tries + 1
            self._is_closed.wait(self._pause(tries))
        return False

    def _pause(self, tries: int) -> float:
        """Return how many seconds to wait before the log is requested again."""
        if self.is_held:
            return 0
        if self._is_complete:  # the container has ended, or the server has lost its connection to the node
            return backoff.pause(tries, first=_END_SECONDS, most=_LONGEST_END_SECONDS)
        return backoff.pause(tries, first=_FIRST_PAUSE, most=_LONGEST_PAUSE)

    def _try_to_read(self, must_stop: Callable[[], bool], timeout: float) -> bool:
        """Read the log once, and return whether the pod may still exist."""
        try:
            self._read(must_stop, timeout)
        except ApiError as error:
            log.debug("%s: the log does not exist yet: %s", self._pod, error)
            return not error.is_absent or self._is_there()
        except (StepError, OSError) as error:
            log.debug("%s: the log was interrupted: %s", self._pod, error)
        return True

    def _is_there(self) -> bool:
        objects = Objects(self._cluster)
        try:
            return objects.is_there(POD, self._cluster.namespace, self._pod, timeout=_LOOK_SECONDS)
        except StepError:
            return True

    def _read(self, must_stop: Callable[[], bool], timeout: float) -> None:
        """Read the log once, from the last line that was copied."""
        query: dict[str, Any] = {"container": WORKLOAD, "follow": True, "timestamps": True}
        if self._last:
            query["sinceTime"] = self._last.decode()
        path = POD.path(self._cluster.namespace, self._pod, "log")
        to_connect, to_wait = self._timeouts
        timeouts = (to_connect, min(to_wait, timeout))
        response = self._response = self._cluster.stream(path, query, timeouts)
        known, held, self._is_complete = self._last, b"", False
        try:
            if self._is_closed.is_set():
                return
            for piece in response.stream(_PIECE_BYTES, decode_content=False):
                *whole, held = (held + piece).split(b"\n")
                self._take(whole, known)
                held = held[:_LONGEST_LINE]
                if self._is_closed.is_set() or self.is_held or must_stop():
                    return
            self._is_complete = True
        except Exception as error:
            raise Unavailable(fault_of(error).text) from error
        finally:
            self._response = None
            response.close()
            response.release_conn()

    def _take(self, stamped: Iterable[bytes], known: bytes) -> None:
        """Copy lines, except those that an earlier connection has brought: `sinceTime` counts whole seconds."""
        copied = []
        for line in stamped:
            moment, _, text = line.partition(b" ")
            if not _TIME.fullmatch(moment):
                continue
            # If the clock of the node was set back, a new request may have an older time than `known`. So its time only
            # has to differ from `_refuted`, the time of a request that the workload itself printed.
            is_request = self.may_hold and text == HOLDING.encode() and moment != self._refuted
            if is_request:
                self._held_at, self.is_held = moment, True
            if moment > known:
                self._last = moment
                if not is_request:
                    copied.append(text + b"\n")
        if copied:
            self._write(b"".join(copied))

    def _write(self, content: bytes) -> None:
        with self._writing:
            content = content[: self._most - self._size]
            if self._is_closed.is_set() or not content:
                return
            try:
                if not self._size:
                    filesystem.write_bytes(self.file, b"")
                filesystem.write_at(self.file, self._size, content)
                self._size += len(content)
            except OSError as error:
                log.warning("%s cannot be written: %s", self.file, error)


def last_lines(cluster: Cluster, pods: Iterable[str]) -> list[str]:
    """Return the last lines of the first of these pods whose container has a log; empty if there is none."""
    query = {"container": WORKLOAD, "tailLines": _LAST_LINES, "limitBytes": _LAST_BYTES}
    for pod in pods:
        try:
            answer = cluster.request("GET", POD.path(cluster.namespace, pod, "log"), query=query, timeout=_LOOK_SECONDS)
        except StepError as error:
            log.debug("%s has no log: %s", pod, error)
            continue
        if found := str(answer.get("text", "")).splitlines():
            return found
    return []
