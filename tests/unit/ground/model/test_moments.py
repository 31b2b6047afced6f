"""Times and periods are parsed in the forms that users write, and other text is refused."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

import pytest

from toolbox.ground.model import moments
from toolbox.ground.model.errors import UsageError

NOW = datetime(2026, 11, 21, 8, 30, tzinfo=UTC)
Here: TypeAlias = Callable[[str], None]

MOMENTS = [
    ("10 days ago", datetime(2026, 11, 11, 8, 30, tzinfo=UTC)),
    ("10d", datetime(2026, 11, 11, 8, 30, tzinfo=UTC)),
    ("1.5 h", datetime(2026, 11, 21, 7, 0, tzinfo=UTC)),
    ("1w", datetime(2026, 11, 14, 8, 30, tzinfo=UTC)),
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
    """Yield a function that sets the local time zone, which is UTC at first."""

    def move(zone: str) -> None:
        monkeypatch.setenv("TZ", zone)
        time.tzset()

    move("UTC")
    yield move
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(("text", "moment"), MOMENTS)
def test_times_are_parsed_in_all_forms(text: str, moment: datetime) -> None:
    assert moments.parse(text, flag="since", now=NOW) == moment


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
def test_a_time_without_a_zone_uses_the_local_offset_of_its_date(here: Here, text: str, moment: datetime) -> None:
    here("Europe/Berlin")
    assert moments.parse(text, flag="since", now=NOW) == moment


def test_days_are_those_of_the_local_time_zone(here: Here) -> None:
    here("Asia/Tokyo")
    late = datetime(2026, 11, 20, 16, tzinfo=UTC)
    assert moments.parse("today", flag="since", now=late) == datetime(2026, 11, 20, 15, tzinfo=UTC)


@pytest.mark.parametrize("text", ["2 hours ago", "120 minutes", "2h ago"])
def test_relative_hours_ignore_clock_changes(here: Here, text: str) -> None:
    here("Europe/Berlin")
    now = datetime(2026, 10, 25, 2, 30, tzinfo=UTC).astimezone()  # 03:30 local time; 02:30 has occurred twice
    assert moments.parse(text, flag="since", now=now) == now - timedelta(hours=2)
    assert moments.parse("now", flag="since", now=now) == now


def test_an_end_date_includes_the_whole_day() -> None:
    found = moments.parse("2026-11-01", flag="until", now=NOW, is_end=True)
    assert found == datetime(2026, 11, 1, 23, 59, 59, 999999, tzinfo=UTC)
    assert moments.parse("2026-11-01 12:00", flag="until", now=NOW, is_end=True).hour == 12
    assert moments.parse("yesterday 12:00", flag="until", now=NOW, is_end=True).hour == 12


@pytest.mark.parametrize(("text", "day"), [("yesterday", 20), ("today", 21)])
def test_an_end_by_the_name_of_a_day_includes_the_whole_day(text: str, day: int) -> None:
    found = moments.parse(text, flag="until", now=NOW, is_end=True)
    assert found == datetime(2026, 11, day, 23, 59, 59, 999999, tzinfo=UTC)


def test_a_day_with_a_clock_change_has_25_hours(here: Here) -> None:
    here("Europe/Berlin")
    begin, end = (moments.parse("2026-10-25", flag="x", now=NOW, is_end=is_end) for is_end in (False, True))
    assert end - begin == timedelta(hours=25) - timedelta(microseconds=1)


@pytest.mark.parametrize(
    "text", ["", "banana", "5", "2026", "11/12/2026", "1.2.2026", "2026-13-45", "0001-01-01", "@", "-1"]
)
def test_invalid_and_ambiguous_times_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=f"--since={text} is not a time"):
        moments.parse(text, flag="since", now=NOW)


@pytest.mark.parametrize(
    "text",
    [
        *("2026-13-01", "2026-13-01 02:00", "2026-13-01T02:00Z", "2026-13-1st", "2026--13-01", "2026 13 01"),
        *("2026_13_01", "2026\u201313\u201301", "01-11-2026", "26-11-01", "1/2-2026", "2026-02-30", "2026-00-10"),
    ],
)
def test_a_day_and_a_month_are_never_swapped(text: str) -> None:
    with pytest.raises(UsageError, match=f"--since={text} is not a time"):
        moments.parse(text, flag="since", now=NOW)
    with pytest.raises(UsageError, match=f"--before={text} is not a time"):
        moments.parse_period(f"2026-01-01..{text}", flag="before", now=NOW)


@pytest.mark.parametrize("text", ["1 Nov 2026", "Nov 1, 2026", "2026-11-1", "Nov 1 2026 00:00", "2026-11-01 00:00"])
def test_a_date_with_a_clear_month_is_read(text: str) -> None:
    assert moments.parse(text, flag="since", now=NOW) == datetime(2026, 11, 1, tzinfo=UTC)


def test_an_unknown_time_zone_is_named() -> None:
    with pytest.raises(UsageError, match="unknown time zone Europe/Nowhere"):
        moments.parse("2026-11-01 12:00 Europe/Nowhere", flag="since", now=NOW)


def test_a_period_includes_its_last_day() -> None:
    since, until = moments.parse_period("2026-11-01..2026-11-07", flag="before", now=NOW)
    assert (since.day, until.day, until.hour) == (1, 7, 23)


def test_a_period_may_be_open() -> None:
    assert moments.parse_period("..", flag="before", now=NOW) == (datetime(1970, 1, 1, tzinfo=UTC), NOW)


@pytest.mark.parametrize("text", ["2026-11-01", "2026-11-07..2026-11-01", "banana..now"])
def test_an_invalid_period_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        moments.parse_period(text, flag="before", now=NOW)
