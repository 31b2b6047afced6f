"""The book of all backends: one attempt for each key, final states, and a notification of each change."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from toolbox.ground.model.errors import StepError
from toolbox.ground.model.verdicts import Cause
from toolbox.ground.model.workloads import AttemptState, AttemptStatus, EndedBy, Handle, WorkloadOutcome
from toolbox.targets import attempt_book
from toolbox.targets.attempt_book import Attempt, AttemptBook

RUNNING = AttemptStatus(AttemptState.RUNNING)
PASSED = AttemptStatus(AttemptState.ENDED, WorkloadOutcome(EndedBy.EXIT, 0))
UNREACHABLE = AttemptStatus(AttemptState.UNREACHABLE, message="no route to host")


class Book(AttemptBook[Attempt]):
    """A book that records its notifications, whether its lock was free at the time, and the status of the attempt."""

    def __init__(self) -> None:
        super().__init__(self._record)
        self.notified: list[AttemptStatus] = []

    def _record(self, name: str) -> None:
        assert not self.lock._is_owned()  # type: ignore[attr-defined]  # a caller that waits would be a deadlock
        self.notified.append(self[name].status)


@pytest.fixture
def book() -> Book:
    return Book()


def attempt(name: str = "a") -> Attempt:
    return Attempt(Handle(name, Path(name)))


def test_a_key_stands_for_one_attempt_even_after_its_end(book: Book) -> None:
    first = book.add(attempt())
    assert book.add(attempt()) is first
    book.change(first, PASSED)
    assert book.add(attempt()) is first
    book.forget("a")
    assert book.add(attempt()) is not first


def test_an_unreachable_attempt_can_be_added_again(book: Book) -> None:
    first = book.add(attempt())
    book.change(first, UNREACHABLE)
    again = book.add(attempt())
    assert (again is first, book["a"].status.state) == (False, AttemptState.SUBMITTED)
    assert book.change(again, PASSED)


def test_the_first_end_is_final_and_is_notified_once(book: Book) -> None:
    one = book.add(attempt())
    changes = [book.change(one, status) for status in (RUNNING, PASSED, UNREACHABLE, RUNNING, PASSED)]
    assert changes == [True, True, False, False, False]
    assert (one.status, book.notified) == (PASSED, [PASSED])


def test_a_reason_to_wait_is_notified_when_it_changes_and_when_it_is_over(book: Book) -> None:
    one = book.add(attempt())
    for reason in ("no node", "no node", "pulling"):
        book.show_waiting(one, reason)
    book.change(one, RUNNING)
    book.show_waiting(one, "late news")
    assert [status.message for status in book.notified] == ["no node", "pulling", ""]


def test_a_wait_for_an_attempt_ends_with_its_start_or_with_the_book(book: Book) -> None:
    one, other = book.add(attempt()), book.add(attempt("b"))
    book.show_waiting(one, "no node")
    assert not one.settled.is_set()
    book.change(one, RUNNING)
    assert (one.settled.is_set(), other.settled.is_set()) == (True, False)
    book.close()
    assert other.settled.is_set()


def test_nothing_changes_in_a_closed_book_or_after_the_removal_of_the_attempt(book: Book) -> None:
    one, removed = book.add(attempt()), book.add(attempt("b"))
    book.forget("b")
    assert book.open_attempts() == [one]
    book.close()
    assert not any(book.change(each, PASSED) for each in (one, removed))
    assert (book.open_attempts(), book.notified) == ([], [])


@pytest.mark.parametrize(
    ("error", "ended_by", "message"),
    [
        (StepError("no room", cause=Cause.CAPACITY), EndedBy.NO_CAPACITY, "no room"),
        (StepError("no image", cause=Cause.CONFIGURATION), EndedBy.NOT_STARTED, "no image"),
        (StepError("no answer"), EndedBy.LOST, "no answer"),
        (OSError(errno.ENOSPC, "full"), EndedBy.LOST, f"OSError: [Errno {errno.ENOSPC}] full"),
        (ValueError("ours"), EndedBy.LOST, "ValueError: ours"),
    ],
)
def test_the_cause_of_a_failed_start_decides_the_outcome(error: Exception, ended_by: EndedBy, message: str) -> None:
    assert attempt_book.outcome_of_failed_start(error) == WorkloadOutcome(ended_by, message=message)
