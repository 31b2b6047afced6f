r"""The tables of the store. `migrations/` creates them, and a test compares the migrations with this module.

    runs -< results -< attempts
      \       |  |`-< checks
       \      |  `-< case_counts, case_results (the outcome of a test case in a run)
        \   cells -< series, cases (the names of test cases)
         `----------- samples (one value of a series in a run), merged_shards

A cell is the same in all runs with the same settings. A result is the outcome of a cell in one run. A step outside of a
matrix is stored as a cell without settings if it has checks or metrics.

The tables are those of SQLAlchemy Core: the ORM is not needed without sessions, and its import would take a tenth of
the start of a run.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    DateTime,
    Dialect,
    Double,
    ForeignKey,
    Integer,
    MetaData,
    String,
    Table,
    TypeDecorator,
    UniqueConstraint,
)


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


METADATA: Final = MetaData(
    naming_convention={
        "ix": "ix_%(column_0_label)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)
"""All tables of the store."""

RUNS: Final = Table(
    "runs",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("project", String, nullable=False),
    Column("run", String, nullable=False),
    Column("started", Moment, index=True, nullable=False),
    Column("state", String, nullable=False),
    Column("verdict", String),
    Column("cause", String),
    Column("message", String, nullable=False),
    Column("exit_code", Integer),
    Column("seconds", Double),
    Column("presets", JSON, nullable=False),
    Column("revision", String),
    Column("host", String),
    Column("user", String),
    Column("versions", JSON, nullable=False),
    Column("directory", String, nullable=False),
    Column("currency", String, nullable=False),
    Column("baseline", Boolean, nullable=False),
    Column("updated", Moment, nullable=False),
    Column("recorded", Moment, nullable=False),
    UniqueConstraint("project", "run", "started"),
)
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

MERGED_SHARDS: Final = Table(
    "merged_shards",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("run_id", Integer, ForeignKey("runs.id", ondelete="CASCADE"), index=True, nullable=False),
    Column("run", String, index=True, nullable=False),
    Column("started", Moment, nullable=False),
    UniqueConstraint("run_id", "run", "started"),
)
"""The run of a shard that was merged into a run. The store never has the results of both.

Args:
    run: the name of the run of the shard.
    started: when the run of the shard began.
"""

CELLS: Final = Table(
    "cells",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("project", String, nullable=False),
    Column("cell", String, nullable=False),
    Column("name", String, nullable=False),
    Column("settings", JSON, nullable=False),
    Column("labels", JSON, nullable=False),
    UniqueConstraint("project", "cell"),
)
"""A combination of settings of a project, or a step outside of a matrix.

Args:
    cell: the digest of the settings, or the key of the step.
    name: the name in the latest run.
"""

RESULTS: Final = Table(
    "results",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("run_id", Integer, ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    Column("cell_id", Integer, ForeignKey("cells.id"), index=True, nullable=False),
    Column("step", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("verdict", String),
    Column("cause", String),
    Column("message", String, nullable=False),
    Column("counts", Boolean, nullable=False),
    Column("seconds", Double),
    Column("fingerprint", String, nullable=False),
    Column("target", String, nullable=False),
    Column("host", String, nullable=False),
    Column("accelerator", String, nullable=False),
    Column("cost", Double),
    Column("out_of_range", Boolean, nullable=False),
    Column("reuse_key", String, default="", index=True, nullable=False),
    Column("reused_from", String, default="", nullable=False),
    UniqueConstraint("run_id", "cell_id"),
)
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

ATTEMPTS: Final = Table(
    "attempts",
    METADATA,
    Column("result_id", Integer, ForeignKey("results.id", ondelete="CASCADE"), primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("target", String, nullable=False),
    Column("accelerator", String, nullable=False),
    Column("revision", String, nullable=False),
    Column("deviates", Boolean, nullable=False),
    Column("out_of_range", Boolean, nullable=False),
    Column("image", String, nullable=False),
    Column("submitted", Moment, nullable=False),
    Column("verdict", String),
    Column("cause", String),
    Column("message", String, nullable=False),
    Column("seconds", Double),
    Column("purpose", String, nullable=False),
    Column("charged_seconds", Double),
    Column("cost", Double),
)
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

CHECKS: Final = Table(
    "checks",
    METADATA,
    Column("result_id", Integer, ForeignKey("results.id", ondelete="CASCADE"), primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("check", String, nullable=False),
    Column("passed", Boolean),
    Column("message", String, nullable=False),
    Column("file", String, nullable=False),
    Column("line", Integer),
)
"""The outcome of a check of the last attempt of a cell."""

SERIES: Final = Table(
    "series",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("cell_id", Integer, ForeignKey("cells.id"), nullable=False),
    Column("metric", String, nullable=False),
    Column("unit", String, nullable=False),
    Column("direction", String),
    UniqueConstraint("cell_id", "metric", "unit"),
)
"""A metric of a cell.

Args:
    direction: `lower` if lower values are better, or `higher`; None if unknown.
"""

SAMPLES: Final = Table(
    "samples",
    METADATA,
    Column("series_id", Integer, ForeignKey("series.id", ondelete="CASCADE"), primary_key=True),
    Column("run_id", Integer, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True, index=True),
    Column("value", Double),
    Column("fault", String, default="", nullable=False),
    Column("accepted", Boolean, nullable=False),
    Column("noisy", Boolean, nullable=False),
    Column("confirmed", Boolean, nullable=False),
    sqlite_with_rowid=False,
)
"""A value of a series in a run. SQLite stores the values of a series side by side.

Args:
    value: the value of the first attempt; None if the value could not be read. The value of a second attempt does
        not replace it, because extreme values are part of the noise.
    fault: why the value could not be read.
    accepted: whether the cell passed, or failed only because metrics were out of the ranges of earlier runs.
    noisy: whether the metric was out of its range in one attempt but not in the other.
    confirmed: whether the cell failed because the metric was out of its range in both attempts.
"""

CASES: Final = Table(
    "cases",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("cell_id", Integer, ForeignKey("cells.id"), nullable=False),
    Column("suite", String, nullable=False),
    Column("name", String, nullable=False),
    UniqueConstraint("cell_id", "suite", "name"),
)
"""A test case of a cell, as the suite under test names it."""

CASE_COUNTS: Final = Table(
    "case_counts",
    METADATA,
    Column("result_id", Integer, ForeignKey("results.id", ondelete="CASCADE"), primary_key=True),
    Column("outcome", String, primary_key=True),
    Column("number", Integer, nullable=False),
)
"""The number of test cases of a result with an outcome."""

CASE_RESULTS: Final = Table(
    "case_results",
    METADATA,
    Column("result_id", Integer, ForeignKey("results.id", ondelete="CASCADE"), primary_key=True),
    Column("case_id", Integer, ForeignKey("cases.id"), primary_key=True, index=True),
    Column("outcome", String, nullable=False),
    Column("seconds", Double),
    Column("message", String, nullable=False),
    Column("text", String, nullable=False),
    sqlite_with_rowid=False,
)
"""How a test case ended in the last attempt of a cell. SQLite stores the test cases of a result side by side.

Args:
    message: one line that says why the test case did not pass.
    text: the text of the failure; empty for most test cases if very many of them failed.
"""

NOTIFICATIONS: Final = Table(
    "notifications",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("project", String, nullable=False),
    Column("presets", String, nullable=False),
    Column("job", String, nullable=False),
    Column("receiver", String, nullable=False),
    Column("announced", String, nullable=False),
    Column("announced_run", String, nullable=False),
    Column("latest_start", Moment, nullable=False),
    Column("delivering_until", Moment),
    UniqueConstraint("project", "presets", "job", "receiver"),
)
"""What a receiver of messages knows about a series of runs.

Args:
    presets: the presets of the series, separated by commas.
    receiver: the name in the block `notifications`.
    announced: the kind of the latest message that was delivered; `recovery` if there was none.
    announced_run: the run of this message; empty if there was none.
    latest_start: the start of the latest run whose end was considered. An older run changes nothing.
    delivering_until: until when a process may be delivering a message; None if no process is.
"""
