"""Ends tasks, and waits for tasks, for certain.

`asyncio.wait_for` of Python 3.10 and 3.11 swallows a cancellation that arrives together with a result. Here a timeout
is `asyncio.wait` with a timeout, and then `ended`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

_SECONDS_BETWEEN: Final = 0.1


async def completed(work: Coroutine[Any, Any, None]) -> None:
    """Wait for work that must not be interrupted. A cancellation is raised when the work is done."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


async def ended(task: asyncio.Future[Any]) -> None:
    """Cancel a task, and wait until it has ended. The cancellation is repeated if a library swallows it."""
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=_SECONDS_BETWEEN)
