"""Moments in time, as people write them: `10 days ago`, `2026-11-01`, `2026-11-01 02:00 Europe/Berlin`."""

from __future__ import annotations

import contextlib
import re
from datetime import UTC, datetime, time, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from toolbox.model.errors import UsageError

_ZONE = re.compile(r"(?P<text>.*\d)\s+(?P<zone>[A-Za-z_]+(?:/[A-Za-z0-9_+-]+)+)", re.DOTALL)
_DAY = re.compile(r"\d{4}-\d{1,2}-\d{1,2}")
_SLASHES = re.compile(r"\d+[/.]\d+[/.]\d+")  # nobody knows which of them is the month
_NAMED_DAY = re.compile(r"today|yesterday|tomorrow", re.IGNORECASE)
_FROM_NOW = re.compile(r".*\b(?:now|ago|hours?|minutes?|seconds?)|in\b.*", re.IGNORECASE | re.DOTALL)
_A_DAY: Final = timedelta(days=1) - timedelta(microseconds=1)


def parse(text: str, *, flag: str, now: datetime | None = None, is_end: bool = False) -> datetime:
    """Return the moment that a text means, with its time zone.

    Where it names none it is in that of this machine, by the rules of its own date: in November too, a time in July is
    one in summer time. `2 hours ago` is counted from now, whatever the clocks did since.

    Args:
        flag: what the text was given for, for the message.
        is_end: whether a day without a time (`2026-11-01`, `yesterday`) means its end, not its beginning.

    Raises:
        UsageError: it means none.
    """
    now = now or datetime.now().astimezone()
    words, zone = _zone(text.strip(), flag)
    moment = None
    with contextlib.suppress(ValueError, OverflowError):  # the year 1 or 9999 need not be there in another zone
        moment = _moment(words, now.tzinfo if _FROM_NOW.fullmatch(words) else zone, now, is_end=is_end)
    if moment is None:
        raise UsageError(f"--{flag}={text}: a time was expected: 2026-11-01, '2026-11-01 02:00 +01:00', '10 days ago'")
    return moment


def parse_period(text: str, *, flag: str, now: datetime | None = None) -> tuple[datetime, datetime]:
    """Return the beginning and the end of a period, `2026-11-01..2026-11-07`; either may be left out.

    Raises:
        UsageError: it is none.
    """
    now = now or datetime.now().astimezone()
    begin, dots, end = text.partition("..")
    if not dots:
        raise UsageError(f"{flag}: {text}: a period was expected: 2026-11-01..2026-11-07, '10 days ago..now'")
    since = parse(begin, flag=flag, now=now) if begin.strip() else datetime.fromtimestamp(0, UTC)
    until = parse(end, flag=flag, now=now, is_end=True) if end.strip() else now
    if since > until:
        raise UsageError(f"{flag}: {text}: the period ends before it begins")
    return since, until


def _moment(words: str, zone: tzinfo | None, now: datetime, *, is_end: bool) -> datetime | None:
    """Return what words mean in a time zone, or by the clock of this machine; None where they mean no moment."""
    import dateparser  # slow to import

    if not words or _SLASHES.search(words):
        return None
    settings = {
        "RELATIVE_BASE": now.astimezone(zone).replace(tzinfo=None),
        "STRICT_PARSING": True,
        "PREFER_DATES_FROM": "past",
        "DATE_ORDER": "YMD",
    }
    found = dateparser.parse(words, languages=["en"], settings=settings)
    if found is None or found.tzinfo is not None:
        return found
    if _NAMED_DAY.fullmatch(words):
        found = datetime.combine(found, time())
    if is_end and (_DAY.fullmatch(words) or _NAMED_DAY.fullmatch(words)):
        found += _A_DAY
    return found.astimezone() if zone is None else found.replace(tzinfo=zone)


def _zone(text: str, flag: str) -> tuple[str, tzinfo | None]:
    """Take the name of a time zone from the end of a text; None where it has none."""
    match = _ZONE.fullmatch(text)
    if match is None:
        return text, None
    try:
        return match["text"], ZoneInfo(match["zone"])
    except (ZoneInfoNotFoundError, ValueError):
        raise UsageError(f"--{flag}={text}: unknown time zone {match['zone']}") from None
