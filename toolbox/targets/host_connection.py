"""One connection to the agent on a host, which is restored after each interruption.

`HostAttempts` sends requests over it. A request waits while the connection is lost, and is then repeated.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final

from toolbox.ground.model import backoff
from toolbox.ground.model.errors import Cancelled, StepError, SubmissionUnknown, outcome_of
from toolbox.ground.model.text import abbreviated
from toolbox.ground.model.verdicts import Cause
from toolbox.ground.system import cancellation
from toolbox.ground.system.processes import Channel
from toolbox.targets import messages
from toolbox.targets.agent_connection import Connection, ConnectionLost, NoInterpreter
from toolbox.targets.messages import Message

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
_TEMPORARY_ERROR: Final = "Temporary failure"


class HostConnection:
    """The connection to one host.

    Args:
        label: the name of the host in messages.
        launch: starts a process that reads and runs the agent on the host (`bootstrap.command`).
        on_event: called with each message of the agent that is not an answer, in another thread.
        on_loss: called when an established connection has ended, in another thread.
    """

    def __init__(
        self,
        label: str,
        launch: Callable[[], Channel],
        on_event: Callable[[Message], None],
        on_loss: Callable[[], None],
    ) -> None:
        self.label = label
        self._launch = launch
        self._on_event = on_event
        self._on_loss = on_loss
        self._lock = threading.Lock()
        self._connecting = threading.Lock()
        self._connection: Connection | None = None
        self._is_closed = False
        self._is_down = False
        self._home = ""

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
                if time.monotonic() >= deadline or self._is_closed:
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
        """Close the connection, and do not connect again."""
        self._is_closed = True
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
                connection = Connection(self._launch(), self._on_event, self._handle_end)
                self._home = str(connection.start_agent().get("home"))
            except (ConnectionLost, OSError) as error:
                # If the host has answered before, any error may be temporary: the host may be restarting.
                if isinstance(error, NoInterpreter) and not self._home:
                    raise self._without_interpreter(str(error)) from None
                is_final = not self._home and _is_final(str(error))
                left = deadline - time.monotonic()
                if is_final or left <= 0 or self._is_closed:
                    self._is_down = True
                    raise self._unreachable(0 if is_final else timeout, str(error)) from None
            else:
                with self._lock:
                    self._connection = connection
                    self._is_down = False
                if self._is_closed:
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
        self._on_loss()

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


def _is_final(reason: str) -> bool:
    """Return whether another try would fail too, judged by the first line of the reason."""
    first = reason.partition("\n")[0]
    return any(error in first for error in _FINAL_ERRORS) and _TEMPORARY_ERROR not in first
