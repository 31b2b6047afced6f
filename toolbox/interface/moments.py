"""Moments in time, as people write them: `10 days ago`, `2026-11-01`, `2026-11-01 02:00 Europe/Berlin`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from toolbox.model.errors import UsageError

_ZONE = re.compile(r"(?P<text>.*\d)\s+(?P<zone>[A-Za-z_]+(?:/[A-Za-z0-9_+-]+)+)", re.DOTALL)
_DAY = re.compile(r"\d{4}-\d{1,2}-\d{1,2}")
_SLASHES = re.compile(r"\d+[/.]\d+[/.]\d+")  # nobody knows which of them is the month
_A_DAY: Final = timedelta(days=1) - timedelta(microseconds=1)


def parse(text: str, *, flag: str, now: datetime | None = None, is_end: bool = False) -> datetime:
    """Return the moment that a text means, with its time zone: that of this machine where it names none.

    Args:
        flag: what the text was given for, for the message.
        is_end: whether a day without a time means its end, not its beginning.

    Raises:
        UsageError: it means none.
    """
    import dateparser  # slow to import

    now = now or datetime.now().astimezone()
    words, zone = _zone(text.strip(), now.tzinfo or UTC, flag)
    settings = {
        "RELATIVE_BASE": now.astimezone(zone).replace(tzinfo=None),
        "STRICT_PARSING": True,
        "PREFER_DATES_FROM": "past",
        "DATE_ORDER": "YMD",
    }
    found = None
    if words and not _SLASHES.search(words):
        found = dateparser.parse(words, languages=["en"], settings=settings)
    if found is None:
        raise UsageError(f"--{flag}={text}: a time was expected: 2026-11-01, '2026-11-01 02:00 +01:00', '10 days ago'")
    moment = found if found.tzinfo is not None else found.replace(tzinfo=zone)
    return moment + _A_DAY if is_end and _DAY.fullmatch(words) else moment


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
        raise UsageError(f"{flag}: {text}: it ends before it begins")
    return since, until


def _zone(text: str, here: tzinfo, flag: str) -> tuple[str, tzinfo]:
    """Take the name of a time zone from the end of a text."""
    match = _ZONE.fullmatch(text)
    if match is None:
        return text, here
    try:
        return match["text"], ZoneInfo(match["zone"])
    except (ZoneInfoNotFoundError, ValueError):
        raise UsageError(f"--{flag}={text}: no time zone is called {match['zone']}") from None
