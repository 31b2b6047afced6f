"""Tracks the attempts on one host over one connection to the agent, which `host_connection` restores when it is lost.

The agent reports the end of each attempt, and sends each piece of a log with its offset. After an interruption, the
agent continues at the end of the local copy of the log, so that no line is lost or repeated.
"""

from __future__ import annotations

import base64
import dataclasses
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from toolbox.ground.model.errors import Cancelled, StepError, describe
from toolbox.ground.model.workloads import AttemptState, AttemptStatus, WorkloadOutcome
from toolbox.ground.system import filesystem
from toolbox.ground.system.processes import Channel
from toolbox.records.runs.layout import AttemptDirectory
from toolbox.targets import messages
from toolbox.targets.agent.log_files import END_BYTES
from toolbox.targets.attempt_book import Attempt, AttemptBook
from toolbox.targets.host_connection import HostConnection
from toolbox.targets.messages import Message

log = logging.getLogger(__name__)

_RUNNING: Final = AttemptStatus(AttemptState.RUNNING)


@dataclass(slots=True, eq=False)
class HostAttempt(Attempt):
    """An attempt on the host. It becomes `RUNNING` when the agent has confirmed that it is on the host.

    Args:
        remote: the directory of the attempt on the host.
        copies_logs: whether the logs are copied to the directory of the attempt, because the host is another machine.
        timeout: how many seconds the host may be unreachable until the attempt is reported as unreachable.
    """

    remote: str
    copies_logs: bool
    timeout: float
    log_bytes: int

    @property
    def key(self) -> str:
        """The directory on the host, by which the agent names attempts."""
        return self.remote

    def offsets(self) -> dict[str, int] | None:
        """Return the sizes of the local copies of the logs; None if the logs are not copied."""
        if not self.copies_logs:
            return None
        return {stream: filesystem.size(log) for stream, log in AttemptDirectory(self.directory).logs().items()}


class HostAttempts:
    """The attempts on one host.

    Args:
        label: the name of the host in messages.
        launch: starts a process that reads and runs the agent on the host (`bootstrap.command`).
        notify: called with the name of an attempt whose status has changed, in another thread.

    Attributes:
        book: the attempts, by their directories on the host.
        connection: the connection to the host.
    """

    def __init__(self, label: str, launch: Callable[[], Channel], notify: Callable[[str], None]) -> None:
        self.label = label
        self.book: AttemptBook[HostAttempt] = AttemptBook(notify)
        self.connection = HostConnection(label, launch, self._handle_event, self._handle_loss)
        self._has_warned = False

    def is_unused(self, directory: str, timeout: float) -> bool:
        """Return whether no workload was ever started in a directory of the host."""
        return bool(self.connection.request("state", timeout, directory=directory)["state"] == "absent")

    def start(self, attempt: HostAttempt, order: Mapping[str, Any], *, sources: str | None) -> None:
        """Start the workload of an attempt, and watch it. Adopt a workload that has already started there.

        Args:
            order: the order for the agent's supervisor, as `toolbox.targets.staging.order` returns it.
            sources: a folder on the host, which becomes `src/` if this call starts the workload.

        Raises:
            StepError: the host cannot be reached, or the agent cannot start the workload.
        """
        attempt = self.book.add(attempt)
        fields = {"order": order, "sources": sources, "offsets": attempt.offsets()}
        self._ask(attempt, "submit", directory=attempt.remote, **fields)
        self.book.change(attempt, _RUNNING)

    def watch(self, attempt: HostAttempt) -> bool:
        """Watch an attempt, and return whether it exists on the host."""
        attempt = self.book.add(attempt)
        answer = self._ask(attempt, "watch", directories={attempt.remote: attempt.offsets()})
        if _is_absent(attempt, answer):
            self.book.forget(attempt.remote)
            return False
        self.book.change(attempt, _RUNNING)
        return True

    def _ask(self, attempt: HostAttempt, op: str, **fields: Any) -> Message:
        """Send a request about an attempt, and return the answer. Stop watching the attempt if there is none."""
        try:
            return self.connection.request(op, attempt.timeout, **fields)
        except BaseException:
            self.book.forget(attempt.remote)
            raise

    def close(self) -> None:
        """Close the connection to the host. The workloads on the host continue to run."""
        self.book.close()
        self.connection.close()

    def _handle_loss(self) -> None:
        if self.book.open_attempts():
            log.info("the connection to %s was lost; connecting again", self.label)
            threading.Thread(target=self._watch_again, name=f"reconnect-{self.label}", daemon=True).start()

    def _watch_again(self) -> None:
        """Connect again, and continue to watch the running attempts."""
        attempts = self.book.open_attempts()
        running = [attempt for attempt in attempts if attempt.status == _RUNNING]
        timeout = max((attempt.timeout for attempt in attempts), default=0.0)
        try:
            answer = self.connection.request(
                "watch", timeout, directories={each.remote: each.offsets() for each in attempts}
            )
            for attempt in running:
                # If the directory of a started attempt was removed, the agent cannot report its end. Check only
                # running attempts, because a submitted attempt may not have a directory yet.
                if _is_absent(attempt, answer):
                    self.connection.request("cancel", timeout, directory=attempt.remote)
                    self.book.change(attempt, _ended({"outcome": None}))
        except (StepError, Cancelled, OSError) as error:
            self._give_up(str(error))
        except Exception as error:  # report the attempts as unreachable: other threads would wait for them forever
            log.exception("the connection to %s could not be restored", self.label)
            self._give_up(describe(error))

    def _give_up(self, reason: str) -> None:
        for attempt in self.book.open_attempts():
            if attempt.status == _RUNNING:
                self.book.change(attempt, AttemptStatus(AttemptState.UNREACHABLE, message=reason))

    def _handle_event(self, message: Message) -> None:
        if messages.is_end(message):
            if (attempt := self.book.get(message["directory"])) is not None:
                self.book.change(attempt, _ended(message))
        elif messages.is_log(message):
            attempt = self.book.get(message["directory"])
            if attempt is not None and attempt.copies_logs:
                file = AttemptDirectory(attempt.directory).log(message["stream"])
                _write_at(file, message["offset"], message["data"], most=attempt.log_bytes + END_BYTES)
        elif not self._has_warned:
            self._has_warned = True
            log.warning("%s: the agent sends malformed events, which are ignored", self.label)


def _ended(message: Message) -> AttemptStatus:
    outcome = WorkloadOutcome.parse(message["outcome"])
    outcome = dataclasses.replace(outcome, may_remain=message.get("may_remain", False))
    return AttemptStatus(AttemptState.ENDED, outcome)


def _is_absent(attempt: HostAttempt, answer: Message) -> bool:
    """Return whether the host does not have an attempt, according to the answer to a request to watch it."""
    return bool(answer["states"].get(attempt.remote, {}).get("state", "absent") == "absent")


def _write_at(file: Path, offset: int, data: str, *, most: int) -> None:
    """Write a piece of a log at its offset. Don't raise an error if the disk is full: `collect` fetches the log again.

    Args:
        most: the limit for the size of the log; the content beyond the limit is dropped.
    """
    if offset > filesystem.size(file):
        return
    try:
        filesystem.write_at(file, offset, base64.b64decode(data)[: max(0, most - offset)])
    except OSError as error:
        log.warning("%s cannot be written: %s", file, error)
