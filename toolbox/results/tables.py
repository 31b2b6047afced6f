r"""The tables of the store. `migrations/` creates them, and a test compares the migrations with this module.

    runs -< results -< attempts
      \       |  |`-< checks
       \      |  `-< case_counts, case_results (the outcome of a test case in a run)
        \   cells -< series, cases (the names of test cases)
         `----------- samples (one value of a series in a run), merged_shards

A cell is the same in all runs with the same settings. A result is the outcome of a cell in one run. A step outside of a
matrix is stored as a cell without settings if it has checks or metrics.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, DateTime, Dialect, Double, ForeignKey, MetaData, String, TypeDecorator, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Moment(TypeDecorator[datetime]):
    """A point in time, stored in UTC, because SQLite stores no time zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return the point in time for the database."""
        del dialect
        return value.astimezone(UTC) if value is not None else None

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return the point in time with its time zone."""
        del dialect
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Base(DeclarativeBase):
    """The base class of the tables."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(column_0_label)s",
            "uq": "uq_%(table_name)s_%(column_0_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {datetime: Moment, float: Double, dict[str, Any]: JSON, list[str]: JSON}  # noqa: RUF012  # SQLAlchemy requires a class attribute


class Run(Base):
    """A run. Its name and its start identify the run, because a resume does not change them.

    Args:
        state: the state of the run when it was recorded: `finished`, `running` or `dead`.
        seconds: the wall time of all sessions together.
        updated: when the journal was last written. An older copy of the run does not replace the row.
        recorded: when the row was written.
        currency: the currency of the costs of the cells.
        baseline: whether bounds, changes and flakiness are computed from the run. A run of a pull request is only
            compared with the baseline.
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
    baseline: Mapped[bool]
    updated: Mapped[datetime]
    recorded: Mapped[datetime]


class MergedShard(Base):
    """The run of a shard that was merged into a run. The store never has the results of both.

    Args:
        run: the name of the run of the shard.
        started: when the run of the shard began.
    """

    __tablename__ = "merged_shards"
    __table_args__ = (UniqueConstraint("run_id", "run", "started"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), index=True)
    run: Mapped[str] = mapped_column(index=True)
    started: Mapped[datetime]


class Cell(Base):
    """A combination of settings of a project, or a step outside of a matrix.

    Args:
        cell: the digest of the settings, or the key of the step.
        name: the name in the latest run.
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
        step: the directory of the step, relative to the run directory.
        fingerprint: a digest of the workload, image, checks and metrics.
        target: the target of the last attempt.
        host: the host of the last attempt.
        accelerator: the accelerator of the last attempt, as configured or detected.
        counts: whether the verdict counts; false for a cell in quarantine.
        cost: the cost of all attempts; None if a target has no price, or the time of an attempt is unknown.
        out_of_range: whether the last attempt failed only because measured values were out of their ranges.
        reuse_key: the key by which a later run finds this result to reuse; empty if the result cannot be reused.
        reused_from: the name of the earlier run from which the result was taken; empty if the cell was executed.
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
    reuse_key: Mapped[str] = mapped_column(String, default="", index=True)
    reused_from: Mapped[str] = mapped_column(String, default="")


class Attempt(Base):
    """One execution of the workload of a cell.

    Args:
        revision: the revision under test; empty if unknown.
        deviates: whether the attempt failed only because values were out of the ranges of earlier runs.
        out_of_range: whether the attempt failed only because values were out of the ranges of earlier runs or out of
            configured ranges.
        image: the container image, as `NAME@sha256:...`; empty if unknown.
        purpose: why the attempt was executed, a value of `charges.Purpose`.
        charged_seconds: the share of the attempt in the time of its target; None if unknown.
        cost: the cost of the attempt; None if its target has no price, or its time is unknown.
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
    purpose: Mapped[str]
    charged_seconds: Mapped[float | None]
    cost: Mapped[float | None]


class Check(Base):
    """The outcome of a check of the last attempt of a cell."""

    __tablename__ = "checks"

    result_id: Mapped[int] = mapped_column(ForeignKey("results.id", ondelete="CASCADE"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    check: Mapped[str]
    passed: Mapped[bool | None]
    message: Mapped[str]
    file: Mapped[str]
    line: Mapped[int | None]


class Series(Base):
    """A metric of a cell.

    Args:
        direction: `lower` if lower values are better, or `higher`; None if unknown.
    """

    __tablename__ = "series"
    __table_args__ = (UniqueConstraint("cell_id", "metric", "unit"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    cell_id: Mapped[int] = mapped_column(ForeignKey("cells.id"))
    metric: Mapped[str]
    unit: Mapped[str]
    direction: Mapped[str | None]


class Sample(Base):
    """A value of a series in a run. SQLite stores the values of a series side by side.

    Args:
        value: the value of the first attempt; None if the value could not be read. The value of a second attempt does
            not replace it, because extreme values are part of the noise.
        fault: why the value could not be read.
        accepted: whether the cell passed, or failed only because metrics were out of the ranges of earlier runs.
        noisy: whether the metric was out of its range in one attempt but not in the other.
        confirmed: whether the cell failed because the metric was out of its range in both attempts.
    """

    __tablename__ = "samples"
    __table_args__ = {"sqlite_with_rowid": False}  # noqa: RUF012  # SQLAlchemy requires a class attribute

    series_id: Mapped[int] = mapped_column(ForeignKey("series.id", ondelete="CASCADE"), primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True, index=True)
    value: Mapped[float | None]
    fault: Mapped[str] = mapped_column(String, default="")
    accepted: Mapped[bool]
    noisy: Mapped[bool]
    confirmed: Mapped[bool]


class Case(Base):
    """A test case of a cell, as the suite under test names it."""

    __tablename__ = "cases"
    __table_args__ = (UniqueConstraint("cell_id", "suite", "name"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    cell_id: Mapped[int] = mapped_column(ForeignKey("cells.id"))
    suite: Mapped[str]
    name: Mapped[str]


class CaseCount(Base):
    """The number of test cases of a result with an outcome."""

    __tablename__ = "case_counts"

    result_id: Mapped[int] = mapped_column(ForeignKey("results.id", ondelete="CASCADE"), primary_key=True)
    outcome: Mapped[str] = mapped_column(primary_key=True)
    number: Mapped[int]


class CaseResult(Base):
    """How a test case ended in the last attempt of a cell. SQLite stores the test cases of a result side by side.

    Args:
        message: one line that says why the test case did not pass.
        text: the text of the failure; empty for most test cases if very many of them failed.
    """

    __tablename__ = "case_results"
    __table_args__ = {"sqlite_with_rowid": False}  # noqa: RUF012  # SQLAlchemy requires a class attribute

    result_id: Mapped[int] = mapped_column(ForeignKey("results.id", ondelete="CASCADE"), primary_key=True)
    case_id: Mapped[int] = mapped_column(ForeignKey("cases.id"), primary_key=True, index=True)
    outcome: Mapped[str]
    seconds: Mapped[float | None]
    message: Mapped[str]
    text: Mapped[str]


class NotificationState(Base):
    """What a receiver of messages knows about a series of runs.

    Args:
        presets: the presets of the series, separated by commas.
        receiver: the name in the block `notifications`.
        announced: the kind of the latest message that was delivered; `recovery` if there was none.
        announced_run: the run of this message; empty if there was none.
        latest_start: the start of the latest run whose end was considered. An older run changes nothing.
        delivering_until: until when a process may be delivering a message; None if no process is.
    """

    __tablename__ = "notifications"
    __table_args__ = (UniqueConstraint("project", "presets", "job", "receiver"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    project: Mapped[str]
    presets: Mapped[str]
    job: Mapped[str]
    receiver: Mapped[str]
    announced: Mapped[str]
    announced_run: Mapped[str]
    latest_start: Mapped[datetime]
    delivering_until: Mapped[datetime | None]
