"""Decides by the store whether a message about a series of runs is due, and records that it was delivered.

A message is due if the latest message that was delivered says something else. So each change is announced once, and a
delivery that failed is tried again at the end of the next run. While a process delivers a message, no other process
delivers one for the same series. If the process is killed then, the next run delivers the message, perhaps again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import insert, select, update

from toolbox.ground.model.notifications import NotificationKind, Series
from toolbox.records.results.store import Store
from toolbox.records.results.tables import NOTIFICATIONS


@dataclass(frozen=True, slots=True)
class Due:
    """A message that is to be delivered.

    Args:
        row: the id of the row of the series and the receiver.
        earlier_run: the run of the latest message that was delivered; empty if there was none.
    """

    row: int
    earlier_run: str


def begin(
    store: Store, series: Series, receiver: str, kind: NotificationKind, *, started: datetime, seconds: float
) -> Due | None:
    """Return the message that the end of a run makes due; None if there is none.

    Args:
        kind: what the end of the run means: `failure` if the run did not pass.
        started: the start of the run. If the store knows a later run of the series, nothing is due.
        seconds: the time for the delivery. Until then, no other process delivers a message; see `end`.
    """
    now = datetime.now(UTC)
    key = {"project": series.project, "presets": ",".join(series.presets), "job": series.job, "receiver": receiver}
    with store.writing() as connection:
        query = select(NOTIFICATIONS).where(*(NOTIFICATIONS.c[name] == value for name, value in key.items()))
        row = connection.execute(query).one_or_none()
        if row is None:
            first = {**key, "announced": NotificationKind.RECOVERY, "announced_run": "", "latest_start": started}
            connection.execute(insert(NOTIFICATIONS).values(**first))
            row = connection.execute(query).one()
        if row.latest_start > started:
            return None
        is_delivering = row.delivering_until is not None and row.delivering_until > now
        is_due = row.announced != kind and not is_delivering
        values: dict[str, Any] = {"latest_start": started}
        if is_due:
            values["delivering_until"] = now + timedelta(seconds=seconds)
        connection.execute(update(NOTIFICATIONS).where(NOTIFICATIONS.c.id == row.id).values(**values))
    return Due(row.id, row.announced_run) if is_due else None


def end(store: Store, due: Due, delivered: NotificationKind | None, run: str) -> None:
    """Record the end of a delivery.

    Args:
        delivered: the kind of the message; None if the delivery failed.
        run: the run that the message is about.
    """
    values: dict[str, Any] = {"delivering_until": None}
    if delivered is not None:
        values |= {"announced": delivered, "announced_run": run}
    with store.writing() as connection:
        connection.execute(update(NOTIFICATIONS).where(NOTIFICATIONS.c.id == due.row).values(**values))
