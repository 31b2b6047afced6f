"""Tasks end although a library swallows cancellations, and work that must not be interrupted is completed."""

from __future__ import annotations

import asyncio

import pytest

from toolbox.features.inference.client import task_ends


def test_work_is_completed_before_the_cancellation_is_raised() -> None:
    done: list[str] = []

    async def main() -> None:
        begun, may_end = asyncio.Event(), asyncio.Event()

        async def work() -> None:
            begun.set()
            await may_end.wait()
            done.append("work")

        task = asyncio.ensure_future(task_ends.completed(work()))
        await begun.wait()
        task.cancel()
        await asyncio.sleep(0)
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert done == ["work"]


def test_an_error_of_the_work_is_raised() -> None:
    async def work() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        asyncio.run(task_ends.completed(work()))


def test_a_task_that_swallows_cancellations_is_cancelled_until_it_ends() -> None:
    swallowed: list[int] = []

    async def stubborn() -> None:
        for number in range(3):
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                swallowed.append(number)

    async def main() -> None:
        task = asyncio.ensure_future(stubborn())
        await asyncio.sleep(0)
        await task_ends.ended(task)
        assert task.done()

    asyncio.run(main())
    assert swallowed == [0, 1, 2]
