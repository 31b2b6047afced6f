"""Cancelling a scope ends its tasks and those of nested scopes, and no other task can start in the scope."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from toolbox.ground.model.errors import Cancelled
from toolbox.ground.system import cancellation
from toolbox.ground.system.cancellation import CancelScope


def test_a_scope_that_is_not_cancelled_has_no_effect() -> None:
    scope = CancelScope()
    scope.check()
    assert scope.reason is None


def test_cancelling_ends_running_tasks_and_has_a_reason() -> None:
    scope, ended = CancelScope(), threading.Event()
    scope.add(ended.set)
    scope.cancel("the sibling failed")
    assert ended.is_set()
    with pytest.raises(Cancelled, match="the sibling failed"):
        scope.check()


def test_only_the_first_reason_counts_and_each_task_is_ended_once() -> None:
    scope, endings = CancelScope(), list[str]()
    scope.add(lambda: endings.append("ended"))
    scope.cancel("first")
    scope.cancel("second")
    assert (scope.reason, endings) == ("first", ["ended"])


def test_a_task_that_has_ended_is_not_ended_again() -> None:
    scope, endings = CancelScope(), list[str]()
    done = scope.add(lambda: endings.append("ended"))
    done()
    done()
    scope.cancel("late")
    assert endings == []


def test_a_task_in_a_cancelled_scope_is_ended_at_once() -> None:
    scope, ended = CancelScope(), threading.Event()
    scope.cancel("before")
    scope.add(ended.set)
    assert ended.is_set()


def test_tasks_are_ended_in_parallel() -> None:
    scope, both = CancelScope(), threading.Barrier(2, timeout=30)
    met = []
    for _ in range(2):
        scope.add(lambda: met.append(both.wait()))
    scope.cancel("now")
    assert sorted(met) == [0, 1]


def test_cancel_waits_until_all_tasks_have_ended() -> None:
    scope, gate, finished = CancelScope(), threading.Event(), threading.Event()

    def end() -> None:
        gate.wait(30)
        finished.set()

    scope.add(end)
    scope.add(gate.set)
    scope.cancel("now")
    assert finished.is_set()


def test_an_error_while_a_task_is_ended_does_not_affect_other_tasks(caplog: pytest.LogCaptureFixture) -> None:
    scope, ended = CancelScope(), threading.Event()

    def broken() -> None:
        raise OSError("no such process group")

    scope.add(broken)
    scope.add(ended.set)
    scope.cancel("now")
    assert ended.is_set()
    assert "no such process group" in caplog.text


def test_cancelling_affects_nested_scopes_and_not_the_parent() -> None:
    with cancellation.opened() as outer, cancellation.opened() as middle, cancellation.opened() as inner:
        middle.cancel("here")
        assert outer.reason is None
        assert inner.reason is not None
        with pytest.raises(Cancelled):
            inner.check()


def test_a_scope_opened_in_a_cancelled_one_is_cancelled_for_the_same_reason() -> None:
    with cancellation.opened() as outer:
        outer.cancel("the deadline")
        with cancellation.opened() as inner:
            assert inner.reason == "the deadline"


def test_a_closed_scope_is_removed_from_its_parent() -> None:
    with cancellation.opened() as outer:
        with cancellation.opened() as inner:
            pass
        outer.cancel("later")
        assert inner.reason is None


def test_the_current_scope_is_the_innermost_scope() -> None:
    with cancellation.opened() as outer:
        with cancellation.opened() as inner:
            assert cancellation.current() is inner
        assert cancellation.current() is outer


def test_outside_of_any_scope_nothing_is_cancelled() -> None:
    cancellation.current().cancel("nobody is in it")
    cancellation.current().check()


def test_cancelled_is_not_caught_as_an_error() -> None:
    scope = CancelScope()
    scope.cancel("stop")
    with pytest.raises(Cancelled), contextlib.suppress(Exception):
        scope.check()


def test_a_thread_without_a_scope_has_the_scope_of_the_process() -> None:
    with ThreadPoolExecutor() as threads:
        with cancellation.opened_by_process() as scope:
            assert threads.submit(cancellation.current).result() is scope
            assert cancellation.current() is scope
        assert threads.submit(cancellation.current).result() is not scope


def test_a_thread_in_a_cancelled_scope_of_the_process_starts_nothing() -> None:
    with cancellation.opened_by_process() as scope, ThreadPoolExecutor() as threads:
        scope.cancel("the end")
        with pytest.raises(Cancelled, match="the end"):
            threads.submit(lambda: cancellation.current().check()).result()


def test_a_scope_that_a_thread_opens_is_cancelled_with_the_scope_of_the_process() -> None:
    def start() -> str:
        with cancellation.opened() as inner:
            scope.cancel("the end")
            return str(inner.reason)

    with cancellation.opened_by_process() as scope, ThreadPoolExecutor() as threads:
        assert threads.submit(start).result() == "the end"


def test_a_sleep_in_a_cancelled_scope_ends_at_once() -> None:
    scope = CancelScope()
    scope.cancel("the end")
    with pytest.raises(Cancelled, match="the end"):
        scope.sleep(3600)


def test_a_sleep_ends_when_its_scope_is_cancelled() -> None:
    scope = CancelScope()
    faults: list[str] = []

    def sleep() -> None:
        try:
            scope.sleep(3600)
        except Cancelled as error:
            faults.append(str(error))

    thread = threading.Thread(target=sleep, daemon=True)
    thread.start()
    scope.cancel("the end")
    thread.join(30)
    assert faults == ["the end"]
