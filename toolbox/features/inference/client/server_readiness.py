"""Waits until a server is ready. A server is ready when its answers to some requests are right."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from . import task_ends
from .answer_format import FaultError

_FIRST_PAUSE_SECONDS: Final = 0.02
_LONGEST_PAUSE_SECONDS: Final = 1.0
_GROWTH: Final = 1.5
_MAX_PROBE_SECONDS: Final = 5.0
_NO_ANSWER: Final = "no answer"

Probe = Callable[[], Awaitable[None]]


class NotReadyError(Exception):
    """The server ended, or was not ready in time."""


async def wait_until_ready(
    probes: Mapping[str, Probe],
    seconds: float,
    *,
    server_end: asyncio.Future[str] | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> None:
    """Repeat each probe until it succeeds.

    Args:
        probes: functions that raise FaultError while the server is not ready, by the name of the request.
        seconds: the time limit for all probes together.
        server_end: says how the server ended. When it has a result, the wait ends at once.
        say: called with the reason why the server is not ready, each time the reason changes.

    Raises:
        NotReadyError: with the last fault.
    """
    end = server_end or asyncio.get_running_loop().create_future()
    deadline = time.monotonic() + seconds
    for name, probe in probes.items():
        pause = _FIRST_PAUSE_SECONDS
        fault: str | None = _NO_ANSWER
        while fault:
            left = deadline - time.monotonic()
            if left <= 0:
                raise NotReadyError(f"the server was not ready within {seconds:g} s: {name}: {fault}")
            before, fault = fault, await _fault(probe, end, min(left, _MAX_PROBE_SECONDS))
            if fault == _NO_ANSWER and left < _MAX_PROBE_SECONDS:
                fault = before  # the last probe had less time than the others
            if fault and fault != before:
                say(f"{name}: {fault}")
            if fault and not end.done():
                await asyncio.wait({end}, timeout=min(pause, max(0.0, deadline - time.monotonic())))
                pause = min(pause * _GROWTH, _LONGEST_PAUSE_SECONDS)
            if end.done():
                raise NotReadyError(f"{end.result()} before it was ready")


async def _fault(probe: Probe, end: asyncio.Future[str], seconds: float) -> str | None:
    """Return why a probe does not succeed, or None if it does."""
    asking: asyncio.Future[Any] = asyncio.ensure_future(probe())
    try:
        await asyncio.wait({asking, end}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await task_ends.ended(asking)
    if asking.cancelled():
        return _NO_ANSWER
    try:
        asking.result()
    except FaultError as error:
        return str(error)
    return None
