"""Sends cases to a server, several at a time if wanted. Whatever the server does, each case gets its answers."""

from __future__ import annotations

import asyncio
import itertools
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from . import task_ends
from .answer_format import FMAAS_KINDS, GENERATING, Answer, Case, FaultError, InvalidRequestError, Limits

INVALID: Final = "the request is invalid: "
# After this many requests in a row without an answer in time, the rest is not sent.
_MAX_TIMEOUTS: Final = 3
# A connection that breaks when the server ends says more than that the server has ended.
_SECONDS_AFTER_END: Final = 1.0
_SECONDS_UNTIL_END: Final = 0.3


class Client(Protocol):
    """Sends one request and fills the answer. The caller limits the time."""

    async def send(self, case: Case, answer: Answer) -> None:
        """Raise FaultError or InvalidRequestError."""


class Sender:
    """Sends cases, and hands each answer to `receive` as soon as it is complete.

    Args:
        clients: the clients by the protocol of a case.
        server_end: its result says how the server ended. Cases after that are not sent.
    """

    def __init__(
        self,
        clients: Mapping[str, Client],
        limits: Limits,
        *,
        receive: Callable[[Answer], None],
        server_end: asyncio.Future[str] | None = None,
    ) -> None:
        self._clients = clients
        self._limits = limits
        self._receive = receive
        self._has_process = server_end is not None
        self._server_end = server_end or asyncio.get_running_loop().create_future()
        self._timeouts = 0

    async def send_all(self, cases: Sequence[Case], concurrency: int = 1) -> None:
        """Start the cases in their order, with at most `concurrency` requests at a time."""
        remaining = iter(cases)
        await asyncio.gather(*(self._send_some(remaining) for _ in range(min(concurrency, len(cases)))))

    async def _send_some(self, remaining: Iterator[Case]) -> None:
        for case in remaining:
            for stream in streams(case):
                self._receive(await self._send(case, stream=stream))

    async def _send(self, case: Case, *, stream: bool) -> Answer:
        """Send a case, and once more each time the server refuses it for now, after the time that the server names."""
        for refusals in itertools.count():
            answer = await self._send_once(case, stream=stream)
            answer.refusals = refusals
            pause = answer.error.retry_after if answer.error and not answer.fault else None
            if pause is None or refusals >= case.retries or pause > self._limits.seconds:
                break
            await asyncio.wait({self._server_end}, timeout=pause)
        return answer

    async def _send_once(self, case: Case, *, stream: bool) -> Answer:
        answer = Answer(case=case.name, stream=stream, limits=self._limits)
        reason = self._reason_not_to_send()
        if reason:
            answer.fault = f"the request was not sent: {reason}"
            return answer
        sending = asyncio.ensure_future(self._clients[case.protocol].send(case, answer))
        is_late = True
        try:
            await asyncio.wait(
                {sending, self._server_end}, timeout=self._limits.seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if self._server_end.done():
                await asyncio.wait({sending}, timeout=_SECONDS_AFTER_END)
            is_late = not sending.done()
        finally:
            await task_ends.ended(sending)
        answer.end()
        answer.fault = self._timeout() if is_late else await self._fault(sending)
        if answer.fault and not answer.fault.startswith(INVALID):
            ends = [self._server_end.result()] if self._server_end.done() else []
            answer.fault = "; ".join([answer.fault, *_arrived(answer), *ends])
        return answer

    def _reason_not_to_send(self) -> str | None:
        if self._server_end.done():
            return self._server_end.result()
        if self._timeouts >= _MAX_TIMEOUTS:
            return f"the last {self._timeouts} requests exceeded the time limit of {self._limits.seconds:g} s"
        return None

    def _timeout(self) -> str:
        if self._server_end.done():
            return "the answer did not end"
        self._timeouts += 1
        return f"the time limit of {self._limits.seconds:g} s was exceeded"

    async def _fault(self, sending: asyncio.Future[None]) -> str | None:
        """Return why a request that has ended in time has no complete answer."""
        self._timeouts = 0
        error = sending.exception()
        if error is None:
            return None
        if isinstance(error, InvalidRequestError):
            return f"{INVALID}{error}"
        if isinstance(error, FaultError):
            if self._has_process:  # a connection breaks a moment before the end of the server is known
                await asyncio.wait({self._server_end}, timeout=_SECONDS_UNTIL_END)
            return str(error)
        # A mistake of this package must not end the sending of the other cases.
        traceback.print_tb(error.__traceback__)  # without the message, which may contain the API key
        return f"the client cannot handle the answer: {type(error).__name__}: {error}"


def _arrived(answer: Answer) -> Sequence[str]:
    """Return how much of a stream has arrived, which tells a slow server from one that has stopped."""
    if not answer.chunks:
        return []
    if (count := len(answer.chunks) + answer.chunks_left_out) == 1:
        return [f"1 chunk arrived, after {answer.last_chunk_seconds:.2f} s"]
    return [f"{count} chunks arrived, the last one after {answer.last_chunk_seconds:.2f} s"]


def streams(case: Case) -> Sequence[bool]:
    """Return how a case is sent: whole, as a stream, or both one after the other."""
    if case.protocol not in GENERATING:
        return [False]
    if case.protocol not in FMAAS_KINDS and case.request.get("stream"):
        return [True]
    has_text = case.protocol not in FMAAS_KINDS or bool(case.request.get("requests"))
    return [False, True] if case.stream and has_text else [False]
