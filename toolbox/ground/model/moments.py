"""Parses times as people write them: `10 days ago`, `10d`, `2026-11-01`, `2026-11-01 02:00 Europe/Berlin`."""

from __future__ import annotations

import contextlib
import re
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from toolbox.ground.model import quantities
from toolbox.ground.model.errors import UsageError

_ZONE = re.compile(r"(?P<text>.*\d)\s+(?P<zone>[A-Za-z_]+(?:/[A-Za-z0-9_+-]+)+)", re.DOTALL)
_DAY = re.compile(r"\d{4}-\d{1,2}-\d{1,2}")
_THREE_NUMBERS = re.compile(r"\d+(?:[^\w:]|_)+\d+(?:[^\w:]|_)+\d+(?![\d:])")
_MONTH = re.compile(r"\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)", re.IGNORECASE)
_NAMED_DAY = re.compile(r"today|yesterday|tomorrow", re.IGNORECASE)
_FROM_NOW = re.compile(r".*\b(?:now|ago|hours?|minutes?|seconds?)|in\b.*", re.IGNORECASE | re.DOTALL)
_A_DAY: Final = timedelta(days=1) - timedelta(microseconds=1)


def parse(text: str, *, flag: str, now: datetime | None = None, is_end: bool = False) -> datetime:
    """Return the time that a text describes, with a time zone.

    If the text does not name a time zone, the time zone of this machine applies, with its UTC offset on the described
    date: a date in July is read in summer time, even in November. `2 hours ago` is an exact duration, even if the
    clocks have changed in between.

    Args:
        flag: the name of the flag, for the message.
        is_end: read a day without a time (`2026-11-01`, `yesterday`) as the end of the day, not as its beginning.

    Raises:
        UsageError: the text does not describe a time.
    """
    now = now or datetime.now().astimezone()
    words, zone = _zone(text.strip(), flag)
    moment = None
    with contextlib.suppress(ValueError, OverflowError):  # in another time zone, the result may be before year 1
        moment = _moment(words, now.tzinfo if _FROM_NOW.fullmatch(words) else zone, now, is_end=is_end)
    if moment is None:
        raise UsageError(
            f"--{flag}={text} is not a time. Examples: 2026-11-01, '2026-11-01 02:00 +01:00', '10 days ago'"
        )
    return moment


def parse_period(text: str, *, flag: str, now: datetime | None = None) -> tuple[datetime, datetime]:
    """Return the beginning and the end of a period such as `2026-11-01..2026-11-07`.

    The text may leave out the beginning, for the year 1970, or the end, for the current time.

    Raises:
        UsageError: the text is not a period, or the period ends before it begins.
    """
    now = now or datetime.now().astimezone()
    begin, dots, end = text.partition("..")
    if not dots:
        raise UsageError(f"{flag}={text} is not a period. Examples: 2026-11-01..2026-11-07, or '10 days ago..now'")
    since = parse(begin, flag=flag, now=now) if begin.strip() else datetime.fromtimestamp(0, UTC)
    until = parse(end, flag=flag, now=now, is_end=True) if end.strip() else now
    if since > until:
        raise UsageError(f"{flag}={text}: the period ends before it begins")
    return since, until


def _moment(words: str, zone: tzinfo | None, now: datetime, *, is_end: bool) -> datetime | None:
    """Return the time that the words describe in `zone`, by default the local zone; None if they describe no time."""
    import dateparser  # slow to import

    if not words or not _has_clear_month(words):
        return None
    if words[0].isdigit() and words[-1] in quantities.UNITS:
        with contextlib.suppress(ValueError):
            return now - timedelta(seconds=quantities.seconds(words))
    settings = {
        "RELATIVE_BASE": now.astimezone(zone).replace(tzinfo=None),
        "STRICT_PARSING": True,
        "PREFER_DATES_FROM": "past",
        "DATE_ORDER": "YMD",
    }
    result = dateparser.parse(words, languages=["en"], settings=settings)
    if result is None or result.tzinfo is not None:
        return result
    if _NAMED_DAY.fullmatch(words):
        result = datetime.combine(result, time())
    if is_end and (_DAY.fullmatch(words) or _NAMED_DAY.fullmatch(words)):
        result += _A_DAY
    return result.astimezone() if zone is None else result.replace(tzinfo=zone)


def _has_clear_month(words: str) -> bool:
    """Return whether a date names its month, or is written as year-month-day.

    `dateparser` tries other orders too: it would read the 13 of `2026-13-01` as the day.

    Raises:
        ValueError: the month or the day does not exist.
    """
    if _THREE_NUMBERS.search(words) is None or _MONTH.search(words) is not None:
        return True
    day = _DAY.search(words)
    return day is not None and bool(date(*map(int, day[0].split("-"))))


def _zone(text: str, flag: str) -> tuple[str, tzinfo | None]:
    """Split a text into the time and the time zone at its end. The zone is None if the text does not name one."""
    match = _ZONE.fullmatch(text)
    if match is None:
        return text, None
    try:
        return match["text"], ZoneInfo(match["zone"])
    except (ZoneInfoNotFoundError, ValueError):
        raise UsageError(f"--{flag}={text}: unknown time zone {match['zone']}") from None
