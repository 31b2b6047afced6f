"""Moments as people write them, and what is none."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

import pytest

from toolbox.commands import _moments
from toolbox.model.errors import UsageError

NOW = datetime(2026, 11, 21, 8, 30, tzinfo=UTC)
Here: TypeAlias = Callable[[str], None]

MOMENTS = [
    ("10 days ago", datetime(2026, 11, 11, 8, 30, tzinfo=UTC)),
    ("2 hours ago", datetime(2026, 11, 21, 6, 30, tzinfo=UTC)),
    ("today", datetime(2026, 11, 21, tzinfo=UTC)),
    ("Yesterday", datetime(2026, 11, 20, tzinfo=UTC)),
    ("yesterday 10:00", datetime(2026, 11, 20, 10, tzinfo=UTC)),
    ("now", NOW),
    ("2026-11-01", datetime(2026, 11, 1, tzinfo=UTC)),
    ("2026-11-01T12:00:00Z", datetime(2026, 11, 1, 12, tzinfo=UTC)),
    ("2026-11-01 12:00 +01:00", datetime(2026, 11, 1, 11, tzinfo=UTC)),
    ("2026-11-01 12:00 Europe/Berlin", datetime(2026, 11, 1, 11, tzinfo=UTC)),
    ("2026-07-01 12:00 Europe/Berlin", datetime(2026, 7, 1, 10, tzinfo=UTC)),
    ("2026-11-01 America/Los_Angeles", datetime(2026, 11, 1, 7, tzinfo=UTC)),
]


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    """Put this machine into a time zone; it is in UTC to begin with."""

    def move(zone: str) -> None:
        monkeypatch.setenv("TZ", zone)
        time.tzset()

    move("UTC")
    yield move
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(("text", "moment"), MOMENTS)
def test_a_moment_is_what_a_person_means(text: str, moment: datetime) -> None:
    assert _moments.parse(text, flag="since", now=NOW) == moment


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-01", datetime(2026, 10, 31, 23, tzinfo=UTC)),
        ("2026-07-01", datetime(2026, 6, 30, 22, tzinfo=UTC)),
        ("2026-07-01 12:00", datetime(2026, 7, 1, 10, tzinfo=UTC)),
        ("yesterday", datetime(2026, 11, 19, 23, tzinfo=UTC)),
        ("2026-07-01 12:00 Z", datetime(2026, 7, 1, 12, tzinfo=UTC)),
        ("2026-11-01 12:00 America/Los_Angeles", datetime(2026, 11, 1, 20, tzinfo=UTC)),
    ],
)
def test_a_moment_without_a_time_zone_is_one_of_this_machine_on_that_date(
    here: Here, text: str, moment: datetime
) -> None:
    here("Europe/Berlin")
    assert _moments.parse(text, flag="since", now=NOW) == moment


def test_the_day_is_the_one_that_this_machine_has(here: Here) -> None:
    here("Asia/Tokyo")
    late = datetime(2026, 11, 20, 16, tzinfo=UTC)
    assert _moments.parse("today", flag="since", now=late) == datetime(2026, 11, 20, 15, tzinfo=UTC)


@pytest.mark.parametrize("text", ["2 hours ago", "120 minutes", "2h ago"])
def test_hours_are_counted_also_where_the_clocks_were_put_back(here: Here, text: str) -> None:
    here("Europe/Berlin")
    now = datetime(2026, 10, 25, 2, 30, tzinfo=UTC).astimezone()  # half past three, and half past two was twice
    assert _moments.parse(text, flag="since", now=now) == now - timedelta(hours=2)
    assert _moments.parse("now", flag="since", now=now) == now


def test_a_day_at_the_end_counts_whole() -> None:
    found = _moments.parse("2026-11-01", flag="until", now=NOW, is_end=True)
    assert found == datetime(2026, 11, 1, 23, 59, 59, 999999, tzinfo=UTC)
    assert _moments.parse("2026-11-01 12:00", flag="until", now=NOW, is_end=True).hour == 12
    assert _moments.parse("yesterday 12:00", flag="until", now=NOW, is_end=True).hour == 12


@pytest.mark.parametrize(("text", "day"), [("yesterday", 20), ("today", 21)])
def test_a_day_that_is_named_counts_whole_at_the_end(text: str, day: int) -> None:
    found = _moments.parse(text, flag="until", now=NOW, is_end=True)
    assert found == datetime(2026, 11, day, 23, 59, 59, 999999, tzinfo=UTC)


def test_the_day_on_which_the_clocks_are_put_back_has_25_hours(here: Here) -> None:
    here("Europe/Berlin")
    begin, end = (_moments.parse("2026-10-25", flag="x", now=NOW, is_end=is_end) for is_end in (False, True))
    assert end - begin == timedelta(hours=25) - timedelta(microseconds=1)


@pytest.mark.parametrize(
    "text", ["", "banana", "5", "2026", "11/12/2026", "1.2.2026", "2026-13-45", "0001-01-01", "@", "-1"]
)
def test_what_is_no_moment_or_could_be_several_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=f"--since={text}: a time was expected"):
        _moments.parse(text, flag="since", now=NOW)


def test_a_time_zone_that_there_is_none_of_is_named() -> None:
    with pytest.raises(UsageError, match="unknown time zone Europe/Nowhere"):
        _moments.parse("2026-11-01 12:00 Europe/Nowhere", flag="since", now=NOW)


def test_a_period_has_an_end_that_counts_whole() -> None:
    since, until = _moments.parse_period("2026-11-01..2026-11-07", flag="before", now=NOW)
    assert (since.day, until.day, until.hour) == (1, 7, 23)


def test_a_period_may_be_open() -> None:
    assert _moments.parse_period("..", flag="before", now=NOW) == (datetime(1970, 1, 1, tzinfo=UTC), NOW)


@pytest.mark.parametrize("text", ["2026-11-01", "2026-11-07..2026-11-01", "banana..now"])
def test_what_is_no_period_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        _moments.parse_period(text, flag="before", now=NOW)
