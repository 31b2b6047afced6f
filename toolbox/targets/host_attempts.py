"""Tracks the attempts on one host over one connection to the agent, which is restored after each interruption.

The agent reports the end of each attempt, and sends each piece of a log with its offset. After an interruption, the
agent continues at the end of the local copy of the log, so that no line is lost or repeated.
"""

from __future__ import annotations

import base64
import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from toolbox.ground.model import backoff
from toolbox.ground.model.errors import Cancelled, StepError, SubmissionUnknown, describe, outcome_of
from toolbox.ground.model.text import abbreviated
from toolbox.ground.model.verdicts import Cause
from toolbox.ground.model.workloads import AttemptState, AttemptStatus, WorkloadOutcome
from toolbox.ground.system import cancellation, filesystem
from toolbox.ground.system.processes import Channel
from toolbox.records.runs.layout import AttemptDirectory
from toolbox.targets import messages
from toolbox.targets.agent.log_files import END_BYTES
from toolbox.targets.agent_connection import Connection, ConnectionLost, NoInterpreter
from toolbox.targets.attempt_book import Attempt, AttemptBook
from toolbox.targets.messages import Message

log = logging.getLogger(__name__)

_FIRST_PAUSE: Final = 0.25
_LONGEST_PAUSE: Final = 5.0
# Error messages of ssh that mean that another try would fail too.
_FINAL_ERRORS: Final = (
    "Permission denied",
    "Host key verification failed",
    "Could not resolve hostname",
    "Bad configuration option",
    "Bad owner or permissions",
    "No such file or directory",
)
_RUNNING: Final = AttemptStatus(AttemptState.RUNNING)
_TEMPORARY_ERROR: Final = "Temporary failure"


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
    """

    def __init__(self, label: str, launch: Callable[[], Channel], notify: Callable[[str], None]) -> None:
        self.label = label
        self.book: AttemptBook[HostAttempt] = AttemptBook(notify)
        self._launch = launch
        self._lock = self.book.lock
        self._connecting = threading.Lock()
        self._connection: Connection | None = None
        self._is_down = False
        self._home = ""
        self._has_warned = False

    def home(self, timeout: float) -> str:
        """Return the home directory on the host.

        Raises:
            StepError: the host cannot be reached, or does not report its home directory.
        """
        if not self._home:
            self._connected(timeout)
        if not messages.is_home(self._home):
            raise self._failure(f"the agent reports an invalid home directory: {abbreviated(self._home)}")
        return self._home

    def is_unused(self, directory: str, timeout: float) -> bool:
        """Return whether no workload was ever started in a directory of the host."""
        return bool(self.request("state", timeout, directory=directory)["state"] == "absent")

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
            return self.request(op, attempt.timeout, **fields)
        except BaseException:
            self.book.forget(attempt.remote)
            raise

    def request(self, op: str, timeout: float, **fields: Any) -> Message:
        """Send a request to the agent, and return the answer.

        If the connection is lost, the request is repeated over a new connection: every request is idempotent.

        Raises:
            StepError: the host cannot be reached for `timeout` seconds, or the agent reports an error.
        """
        deadline = time.monotonic() + timeout
        was_sent = False  # whether the agent may have received an earlier try
        while True:
            try:
                if was_sent:
                    cancellation.current().sleep(_FIRST_PAUSE)
                connection = self._connected(deadline - time.monotonic())
            except (StepError, Cancelled) as error:
                raise self._error_after_sending(op, error) if was_sent else error from None
            try:
                answer = connection.request(op, **fields)
            except ConnectionLost as error:
                was_sent = True
                if time.monotonic() >= deadline or self.book.is_closed:
                    raise self._error_after_sending(op, self._unreachable(timeout, str(error))) from None
                connection.close()
                self._handle_end(connection)
                continue
            fault = messages.error_text(answer)
            if fault is None and not messages.is_answer(op, answer):
                fault = f"the agent answers `{op}` with a malformed message"
            if fault is not None:
                failure = self._failure(fault)
                raise self._error_after_sending(op, failure) if was_sent else failure
            return answer

    def close(self) -> None:
        """Close the connection to the host. The workloads on the host continue to run."""
        self.book.close()
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _connected(self, timeout: float) -> Connection:
        with self._connecting:
            with self._lock:
                if self._connection is not None:
                    return self._connection
            return self._connect(timeout)

    def _connect(self, timeout: float) -> Connection:
        cancellation.current().check()
        # After one call has timed out, later calls try once without waiting.
        timeout = 0 if self._is_down else timeout
        deadline = time.monotonic() + timeout
        tries = 0
        while True:
            try:
                connection = Connection(self._launch(), self._handle_event, self._handle_end)
                self._home = str(connection.start_agent().get("home"))
            except (ConnectionLost, OSError) as error:
                # If the host has answered before, any error may be temporary: the host may be restarting.
                if isinstance(error, NoInterpreter) and not self._home:
                    raise self._without_interpreter(str(error)) from None
                is_final = not self._home and _is_final(str(error))
                left = deadline - time.monotonic()
                if is_final or left <= 0 or self.book.is_closed:
                    self._is_down = True
                    raise self._unreachable(0 if is_final else timeout, str(error)) from None
            else:
                with self._lock:
                    self._connection = connection
                    self._is_down = False
                if self.book.is_closed:
                    self.close()
                return connection
            # Sleep at most until the deadline, and try a last time then.
            cancellation.current().sleep(min(left, backoff.pause(tries, first=_FIRST_PAUSE, most=_LONGEST_PAUSE)))
            tries += 1

    def _handle_end(self, connection: Connection) -> None:
        with self._lock:
            if connection is not self._connection:
                return  # the connection was never established, or `close` has ended it
            self._connection = None
            is_needed = bool(self.book.open_attempts())
        if is_needed:
            log.info("the connection to %s was lost; connecting again", self.label)
            threading.Thread(target=self._reconnect, name=f"reconnect-{self.label}", daemon=True).start()

    def _reconnect(self) -> None:
        """Connect again, and continue to watch the running attempts."""
        attempts = self.book.open_attempts()
        running = [attempt for attempt in attempts if attempt.status == _RUNNING]
        timeout = max((attempt.timeout for attempt in attempts), default=0.0)
        try:
            answer = self.request("watch", timeout, directories={each.remote: each.offsets() for each in attempts})
            for attempt in running:
                # If the directory of a started attempt was removed, the agent cannot report its end. Check only
                # running attempts, because a submitted attempt may not have a directory yet.
                if _is_absent(attempt, answer):
                    self.request("cancel", timeout, directory=attempt.remote)
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

    @staticmethod
    def _error_after_sending(op: str, error: StepError | Cancelled) -> StepError | Cancelled:
        """Return the error for a request that the agent may have carried out, although it did not answer."""
        if op != "submit":
            return error
        verdict, cause = outcome_of(error)
        return SubmissionUnknown(f"the workload may have been started; {error}", verdict=verdict, cause=cause)

    def _unreachable(self, timeout: float, reason: str) -> StepError:
        waited = f" for {timeout:.0f} s" if round(timeout) else ""
        return self._failure(f"the host cannot be reached{waited}: {reason}")

    def _without_interpreter(self, reason: str) -> StepError:
        first, *others = reason.splitlines()
        hint = f"the agent cannot start: {first}; `python` of the target must name Python 3.8 or later"
        return StepError("\n".join([f"{self.label}: {hint}", *others]), cause=Cause.CONFIGURATION)

    def _failure(self, message: str) -> StepError:
        return StepError(f"{self.label}: {message}")


def _ended(message: Message) -> AttemptStatus:
    outcome = WorkloadOutcome.parse(message["outcome"])
    outcome = dataclasses.replace(outcome, may_remain=message.get("may_remain", False))
    return AttemptStatus(AttemptState.ENDED, outcome)


def _is_absent(attempt: HostAttempt, answer: Message) -> bool:
    """Return whether the host does not have an attempt, according to the answer to a request to watch it."""
    return bool(answer["states"].get(attempt.remote, {}).get("state", "absent") == "absent")


def _is_final(reason: str) -> bool:
    """Return whether another try would fail too, judged by the first line of the reason."""
    first = reason.partition("\n")[0]
    return any(error in first for error in _FINAL_ERRORS) and _TEMPORARY_ERROR not in first


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
