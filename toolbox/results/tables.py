r"""The tables of the store. `migrations/` makes them; a test holds the two together.

    runs -< results -< attempts
      \       |  `-< checks
       \    cells -< series
        `------------ samples (one value of a series in a run)

A cell is the same in every run that has its settings; a result is what it came to in one of them. What is judged
outside of a matrix, a step with checks or metrics of its own, is a cell without settings.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, DateTime, Dialect, Double, ForeignKey, MetaData, String, TypeDecorator, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Moment(TypeDecorator[datetime]):
    """A moment in time, in UTC: SQLite keeps no time zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return the moment as the database keeps it."""
        del dialect
        return value.astimezone(UTC) if value is not None else None

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return the moment with its time zone."""
        del dialect
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Base(DeclarativeBase):
    """What the tables have in common."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(column_0_label)s",
            "uq": "uq_%(table_name)s_%(column_0_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {datetime: Moment, float: Double, dict[str, Any]: JSON, list[str]: JSON}  # noqa: RUF012  # as SQLAlchemy asks


class Run(Base):
    """A run. Its name and its start tell it from others: resuming it changes neither.

    Args:
        state: of the run when it was recorded: `finished`, `running` or `dead`.
        seconds: wall time, all its sessions together.
        updated: when its journal was last written: an older copy of it does not replace this.
        recorded: when the row was written.
        currency: of what its cells cost.
    """

    __tablename__ = "runs"
    __table_args__ = (UniqueConstraint("project", "run", "started"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    project: Mapped[str]
    run: Mapped[str]
    started: Mapped[datetime] = mapped_column(index=True)
    state: Mapped[str]
    verdict: Mapped[str | None]
    cause: Mapped[str | None]
    message: Mapped[str]
    exit_code: Mapped[int | None]
    seconds: Mapped[float | None]
    presets: Mapped[list[str]]
    revision: Mapped[str | None]
    host: Mapped[str | None]
    user: Mapped[str | None]
    versions: Mapped[dict[str, Any]]
    directory: Mapped[str]
    currency: Mapped[str]
    updated: Mapped[datetime]
    recorded: Mapped[datetime]


class Cell(Base):
    """A combination of settings of a project, or the place of a step that is judged.

    Args:
        cell: the digest of its settings, or the key of the step.
        name: as the latest run called it; `labels` is how its values are shown, by axis.
    """

    __tablename__ = "cells"
    __table_args__ = (UniqueConstraint("project", "cell"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    project: Mapped[str]
    cell: Mapped[str]
    name: Mapped[str]
    settings: Mapped[dict[str, Any]]
    labels: Mapped[dict[str, Any]]


class Result(Base):
    """How a cell ended in a run.

    Args:
        step: its directory in that of the run.
        fingerprint: of what it executed, its image included, and how that was judged.
        target: of its last attempt; likewise `host`, and `accelerator` as its target is described, or as it was seen.
        counts: whether its verdict counted: not in quarantine.
        cost: of all its attempts; None where a target has no price, or nobody knows how long an attempt took.
        out_of_range: whether its last attempt failed only because measured values were out of their ranges.
    """

    __tablename__ = "results"
    __table_args__ = (UniqueConstraint("run_id", "cell_id"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    cell_id: Mapped[int] = mapped_column(ForeignKey("cells.id"), index=True)
    step: Mapped[str]
    kind: Mapped[str]
    verdict: Mapped[str | None]
    cause: Mapped[str | None]
    message: Mapped[str]
    counts: Mapped[bool]
    seconds: Mapped[float | None]
    fingerprint: Mapped[str]
    target: Mapped[str]
    host: Mapped[str]
    accelerator: Mapped[str]
    cost: Mapped[float | None]
    out_of_range: Mapped[bool]


class Attempt(Base):
    """One execution of the workload of a cell.

    Args:
        revision: of what was tested; empty where it is not known.
        deviates: whether nothing was wrong but a value out of the range of earlier runs.
        out_of_range: whether nothing was wrong but values out of their ranges, those of earlier runs or given ones.
        image: the container image that it ran in, as `NAME@sha256:...`; empty where that is not known.
    """

    __tablename__ = "attempts"

    result_id: Mapped[int] = mapped_column(ForeignKey("results.id", ondelete="CASCADE"), primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    target: Mapped[str]
    accelerator: Mapped[str]
    revision: Mapped[str]
    deviates: Mapped[bool]
    out_of_range: Mapped[bool]
    image: Mapped[str]
    submitted: Mapped[datetime]
    verdict: Mapped[str | None]
    cause: Mapped[str | None]
    message: Mapped[str]
    seconds: Mapped[float | None]


class Check(Base):
    """What a check said of the last attempt of a cell."""

    __tablename__ = "checks"

    result_id: Mapped[int] = mapped_column(ForeignKey("results.id", ondelete="CASCADE"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    check: Mapped[str]
    passed: Mapped[bool | None]
    message: Mapped[str]
    file: Mapped[str]
    line: Mapped[int | None]


class Series(Base):
    """A metric of a cell. `direction`: which values are better, `lower` or `higher`."""

    __tablename__ = "series"
    __table_args__ = (UniqueConstraint("cell_id", "metric", "unit"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    cell_id: Mapped[int] = mapped_column(ForeignKey("cells.id"))
    metric: Mapped[str]
    unit: Mapped[str]
    direction: Mapped[str | None]


class Sample(Base):
    """A value of a series in a run. SQLite keeps those of a series side by side.

    Args:
        value: None where it could not be read, and `fault` says why. Where an attempt had to confirm another, that of
            the first: the extremes among them belong to the noise too.
        accepted: whether it tells how fast things are: its cell did what it should.
        noisy: whether the metric was out of its range in one attempt, and not in the other.
        confirmed: whether the cell failed because the metric was out of its range in both attempts.
    """

    __tablename__ = "samples"
    __table_args__ = {"sqlite_with_rowid": False}  # noqa: RUF012  # as SQLAlchemy asks

    series_id: Mapped[int] = mapped_column(ForeignKey("series.id", ondelete="CASCADE"), primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True, index=True)
    value: Mapped[float | None]
    fault: Mapped[str] = mapped_column(String, default="")
    accepted: Mapped[bool]
    noisy: Mapped[bool]
    confirmed: Mapped[bool]
