"""A function is called for all workers at once, and the first error ends the other calls."""

from __future__ import annotations

import threading

import pytest

from toolbox.features.tpu import worker_threads
from toolbox.ground.model.errors import Cancelled, StepError
from toolbox.ground.system import cancellation


def test_results_are_in_the_order_of_the_items() -> None:
    barrier = threading.Barrier(3, timeout=20)

    def wait(item: int) -> int:
        barrier.wait()
        return -item

    assert worker_threads.for_each(wait, [1, 2, 3]) == [-1, -2, -3]


def test_no_items_need_no_threads() -> None:
    assert worker_threads.for_each(str, []) == []


def test_the_first_error_cancels_the_other_calls() -> None:
    def fail_or_sleep(item: int) -> None:
        if item == 1:
            raise StepError("broken")
        cancellation.current().sleep(60)

    with pytest.raises(StepError, match="broken"):
        worker_threads.for_each(fail_or_sleep, [0, 1, 2])


def test_a_cancelled_scope_ends_all_calls() -> None:
    with cancellation.opened() as scope:

        def sleep(item: int) -> None:
            if item == 0:
                threading.Thread(target=scope.cancel, args=("enough",)).start()
            cancellation.current().sleep(60)

        with pytest.raises(Cancelled, match="enough"):
            worker_threads.for_each(sleep, [0, 1])
