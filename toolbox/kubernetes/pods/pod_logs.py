"""The logs of a workload in a pod, on their way into the directory of its attempt.

The agent says on the container's output what the logs hold, with the place of each piece (`toolbox.agent.frames`):
where the copy ends is where it goes on, however often the connection drops, and what is missing is known.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from toolbox.agent import frames
from toolbox.agent.log_files import END_BYTES
from toolbox.agent.supervisor import STREAMS
from toolbox.kubernetes.api.connection import ApiError, Cluster, Unavailable, fault_of, shut
from toolbox.kubernetes.api.objects import POD, Objects
from toolbox.kubernetes.pods.views import WORKLOAD
from toolbox.model import backoff
from toolbox.model.errors import StepError
from toolbox.model.workloads import LOG_BYTES
from toolbox.runs.layout import AttemptDirectory
from toolbox.system import filesystem

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse

log = logging.getLogger(__name__)

_FIRST_PAUSE: Final = 0.25
_LONGEST_PAUSE: Final = 5.0
_PIECE_BYTES: Final = 1 << 16
_OVERLAP_SECONDS: Final = 30  # that a server's clock and ours count differently
_TRIES: Final = 6  # in vain, once it has ended: a node that is busy writes the end of a log seconds later
# Seconds, to connect and between two pieces: a connection that hangs is given up, and one that is silent begun again.
_STREAM_TIMEOUTS: Final = (5.0, 120.0)
_GLANCE_SECONDS: Final = 5.0
_STRAY_LINES: Final = 5
_STRAY_BYTES: Final = 1000  # of each of them
_LONGEST_LINE: Final = 1 << 16


class PodLogs:
    """The logs of one pod.

    Args:
        directory: where the copies are.
        timeout: how long the server may be away once the workload has ended, in seconds.
        log_bytes: the limit of each log; the rest of a longer log is dropped.
    """

    def __init__(
        self, cluster: Cluster, pod: str, directory: Path, timeout: float, *, log_bytes: int = LOG_BYTES
    ) -> None:
        self._cluster = cluster
        self._objects = Objects(cluster)
        self._pod = pod
        self._directory = directory
        self._timeout = timeout
        self._most = log_bytes + END_BYTES
        self._response: BaseHTTPResponse | None = None
        self._heard = 0.0  # when something was heard last, by the monotonic clock
        self._copied = 0  # bytes
        self._has_gap = False
        self._is_closed = threading.Event()
        self._ended = threading.Event()
        self._said: Mapping[str, int] | None = None
        self.stray: list[str] = []  # what was printed by who is not our agent

    def missing(self) -> int:
        """Return how many bytes are known to be missing at the end of the copies."""
        said = self._said or {}
        return sum(max(0, int(said.get(stream, 0)) - filesystem.size(self._file(stream))) for stream in STREAMS)

    def end(self, said: Mapping[str, int] | None) -> None:
        """Learn that the workload has ended, and how much of each log was said.

        None where nobody knows: what follows it hears no end then, for it may run.
        """
        self._said = said
        self._ended.set()
        if said is None and (response := self._response) is not None:
            shut(response)

    def is_whole(self) -> bool:
        """Whether all of it is here, and there is no need to ask."""
        return self._said is not None and not self.missing()

    def close(self) -> None:
        """Stop following."""
        self._is_closed.set()
        self._ended.set()
        if (response := self._response) is not None:
            shut(response)

    def follow(self) -> None:
        """Copy what is said until the workload has ended, and all of it is here or cannot be had."""
        silent, tries, deadline = 0, 0, math.inf  # tries without anything new; `tries` are those after the end
        while not self._is_closed.is_set():
            has_ended = self._ended.is_set()
            if has_ended:
                # Of a workload that nobody has heard the end of the log may be gone with its node.
                timeout = 0.0 if self._said is None else self._timeout
                deadline = min(deadline, time.monotonic() + timeout)
            if has_ended and (self.is_whole() or (tries >= _TRIES and time.monotonic() >= deadline)):
                return
            before = self._copied
            was_given = self._try_to_read(follow=not has_ended)
            is_new = self._copied > before
            is_all = self._said is None or (tries >= _TRIES and not is_new)
            if was_given is None or (has_ended and was_given and is_all):
                return
            silent, tries = (0, 0) if is_new else (silent + 1, tries + has_ended)
            if not self.is_whole():
                pause = backoff.pause(silent, first=_FIRST_PAUSE, most=_LONGEST_PAUSE)
                self._ended.wait(pause) if not has_ended else self._is_closed.wait(pause)

    def _try_to_read(self, *, follow: bool) -> bool | None:
        """Read the log once, and tell whether it was given; None where there is none any more."""
        try:
            self._read(follow=follow)
        except ApiError as error:
            if error.is_absent and self._is_gone():
                return None
            log.debug("%s: the log is not there yet: %s", self._pod, error)
        except (StepError, OSError) as error:
            log.debug("%s: the log was broken off: %s", self._pod, error)
        else:
            return True
        return False

    def _is_gone(self) -> bool:
        """Tell whether there is no such pod, and so no log of it."""
        try:
            return not self._objects.is_there(POD, self._cluster.namespace, self._pod, timeout=_GLANCE_SECONDS)
        except StepError:
            return False

    def _read(self, *, follow: bool) -> None:
        """Read the log once, from about where the copies end; from its start where something was missing there."""
        since: dict[str, Any] = {}
        if self._heard and not self._has_gap:
            since = {"sinceSeconds": int(time.monotonic() - self._heard) + _OVERLAP_SECONDS}
        self._has_gap = False
        path = POD.path(self._cluster.namespace, self._pod, "log")
        query = {"container": WORKLOAD, "follow": follow, **since}
        response = self._response = self._cluster.stream(path, query, _STREAM_TIMEOUTS)
        try:
            if self._is_closed.is_set():
                return
            for pieces in self._pieces(response):
                self._take(pieces)
        except Exception as error:
            raise Unavailable(fault_of(error).text) from error
        finally:
            self._response = None
            response.close()
            response.release_conn()

    def _pieces(self, response: BaseHTTPResponse) -> Iterator[list[frames.Piece]]:
        """Yield what has come, as much at once as there was."""
        held = b""
        for chunk in response.stream(_PIECE_BYTES, decode_content=False):
            *whole, held = (held + chunk).split(b"\n")
            yield self._decoded(whole)
            if len(held) > _LONGEST_LINE:  # the agent writes no line of this length
                yield self._decoded([held])
                held = b""
        # A node that still writes the log gives a line by halves; a piece is whole with its line.
        if held and frames.decode(held) is None:
            yield self._decoded([held])

    def _decoded(self, lines: list[bytes]) -> list[frames.Piece]:
        found = []
        for line in lines:
            piece = frames.decode(line)
            if piece is not None:
                found.append(piece)
            elif line:
                self.stray = [*self.stray, line[:_STRAY_BYTES].decode(errors="replace")][-_STRAY_LINES:]
        return found

    def _take(self, pieces: list[frames.Piece]) -> None:
        self._heard = time.monotonic()
        for stream in STREAMS:
            ours = [piece for piece in pieces if piece.stream == stream]
            if not ours:
                continue
            file, start = self._file(stream), ours[0].offset
            have = filesystem.size(file)
            content = bytearray()
            for piece in ours:
                if piece.offset != start + len(content):
                    self._write(file, have, start, bytes(content))
                    start, content, have = piece.offset, bytearray(), filesystem.size(file)
                content += piece.content
            self._write(file, have, start, bytes(content))

    def _write(self, file: Path, have: int, start: int, content: bytes) -> None:
        """Write what is new. What a full disk does not take is missing at the end, and found later."""
        if start > have:
            self._has_gap = True
            return
        new = content[have - start : max(0, self._most - start)]
        if not new:
            return
        try:
            filesystem.make_directory(self._directory)
            filesystem.write_at(file, have, new)
            self._copied += len(new)
        except OSError as error:
            log.warning("%s cannot be written: %s", file, error)

    def _file(self, stream: str) -> Path:
        return AttemptDirectory(self._directory).log(stream)
