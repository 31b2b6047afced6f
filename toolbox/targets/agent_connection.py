"""One connection to an agent: sends requests, returns the answers, and calls a function for each event."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Final

from toolbox.ground.model.text import reason_first
from toolbox.ground.system.processes import Channel, LineTooLong
from toolbox.targets import bootstrap, messages
from toolbox.targets.messages import Message

_HELLO: Final = b'{"event": "hello"'
_HELLO_SECONDS: Final = 60.0
_ANSWER_SECONDS: Final = 60.0
_CANNOT_EXECUTE: Final = (126, 127)  # the exit statuses of `sh` if a program is missing or cannot be executed

log = logging.getLogger(__name__)


class ConnectionLost(Exception):
    """The agent does not answer, or the connection has ended. The text of the exception is the last known error."""


class NoInterpreter(ConnectionLost):
    """The host was reached, but has no usable Python under the name that the target gives."""


class Connection:
    """A connection to one agent. Its methods may be called from any thread.

    Args:
        channel: the pipes of a new process that reads the program of the agent (`bootstrap.command`).
        on_event: called with each event, in the thread that reads the messages.
        on_end: called when the connection has ended, in the thread that reads the messages.
    """

    def __init__(
        self,
        channel: Channel,
        on_event: Callable[[Message], None],
        on_end: Callable[[Connection], None],
    ) -> None:
        self._channel = channel
        self._on_event = on_event
        self._on_end = on_end
        self._request_ids = itertools.count(1)
        self._answers: dict[int, Future[Message]] = {}
        self._lock = threading.Lock()
        self._hello: Future[Message] = Future()
        self._reader = threading.Thread(target=self._read, name="agent", daemon=True)
        self._has_ended = False
        self._reader.start()

    def start_agent(self) -> Message:
        """Send the program of the agent, and return the agent's first message, which describes the host.

        Raises:
            ConnectionLost: the agent does not start.
        """
        with contextlib.suppress(OSError):  # the reading thread reports the reason
            self._channel.write(bootstrap.program())
        try:
            return self._hello.result(_HELLO_SECONDS)
        except FutureTimeoutError:
            self.close()
            raise ConnectionLost(f"the agent did not start within {_HELLO_SECONDS:g} s") from None

    def request(self, op: str, **fields: Any) -> Message:
        """Send a request to the agent, and return its answer.

        Raises:
            ConnectionLost: the agent did not answer. It may have carried out the request.
        """
        request_id = next(self._request_ids)
        answer: Future[Message] = Future()
        with self._lock:
            if self._has_ended:
                raise ConnectionLost("the connection has ended")
            self._answers[request_id] = answer
        try:
            self._channel.write(json.dumps({"id": request_id, "op": op, **fields}).encode() + b"\n")
            return answer.result(_ANSWER_SECONDS)
        except FutureTimeoutError:  # caught before OSError, because it is a subclass of OSError since Python 3.11
            raise ConnectionLost(f"the agent did not answer within {_ANSWER_SECONDS:g} s") from None
        except OSError as error:
            raise ConnectionLost(str(error)) from error
        finally:
            with self._lock:
                self._answers.pop(request_id, None)

    def close(self) -> None:
        """End the connection. The workloads that the agent started continue to run."""
        self._channel.close()
        if threading.current_thread() is not self._reader:
            self._reader.join()

    def _read(self) -> None:
        fault = ""
        try:
            for line in self._channel.lines(messages.LONGEST):
                # The lines before the agent's first message are output of the login shell.
                if self._hello.done() or line.startswith(_HELLO):
                    self._handle(json.loads(line))
        except LineTooLong as error:
            fault = f"the agent sent a message that is too long: {error}"
        except (OSError, ValueError, RecursionError):  # the channel was closed, or a message is malformed
            pass
        except Exception:  # end the connection, because other threads would wait forever for answers
            log.exception("an error occurred while the messages of an agent were read")
        status = self._channel.close()
        reason = fault or reason_first(self._channel.errors) or f"the agent ended with status {status}"
        is_unusable = status in _CANNOT_EXECUTE or bootstrap.TOO_OLD in reason
        kind = NoInterpreter if is_unusable and not self._hello.done() else ConnectionLost
        with self._lock:
            self._has_ended = True
            waiting = [self._hello, *self._answers.values()]
        for answer in waiting:
            if not answer.done():
                answer.set_exception(kind(reason))
        self._on_end(self)

    def _handle(self, message: object) -> None:
        if not isinstance(message, dict):
            raise ValueError("the message is not an object")  # noqa: TRY004  # the data is wrong, not an argument
        if message.get("event") == "hello" and not self._hello.done():
            self._hello.set_result(message)
        elif message.get("event") in messages.EVENTS:
            self._on_event(message)
        elif isinstance(message.get("id"), int):
            with self._lock:
                answer = self._answers.get(message["id"])
            if answer is not None and not answer.done():
                answer.set_result(message)
        else:
            raise ValueError("the message is neither a greeting, nor an event, nor an answer")
