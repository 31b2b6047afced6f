"""The first version of the tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create the tables."""
    _create_cells_and_series()
    _create_runs()
    _create_results()
    _create_cases()
    _create_notifications()


def _create_cells_and_series() -> None:
    op.create_table(
        "cells",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("project", sa.String, nullable=False),
        sa.Column("cell", sa.String, nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("settings", sa.JSON, nullable=False),
        sa.Column("labels", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_cells"),
        sa.UniqueConstraint("project", "cell", name="uq_cells_project"),
    )
    op.create_table(
        "series",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("cell_id", sa.Integer, nullable=False),
        sa.Column("metric", sa.String, nullable=False),
        sa.Column("unit", sa.String, nullable=False),
        sa.Column("direction", sa.String),
        sa.PrimaryKeyConstraint("id", name="pk_series"),
        sa.ForeignKeyConstraint(["cell_id"], ["cells.id"], name="fk_series_cell_id_cells"),
        sa.UniqueConstraint("cell_id", "metric", "unit", name="uq_series_cell_id"),
    )


def _create_runs() -> None:
    op.create_table(
        "runs",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("project", sa.String, nullable=False),
        sa.Column("run", sa.String, nullable=False),
        sa.Column("started", _MOMENT, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("verdict", sa.String),
        sa.Column("cause", sa.String),
        sa.Column("message", sa.String, nullable=False),
        sa.Column("exit_code", sa.Integer),
        sa.Column("seconds", sa.Double),
        sa.Column("presets", sa.JSON, nullable=False),
        sa.Column("revision", sa.String),
        sa.Column("host", sa.String),
        sa.Column("user", sa.String),
        sa.Column("versions", sa.JSON, nullable=False),
        sa.Column("directory", sa.String, nullable=False),
        sa.Column("currency", sa.String, nullable=False),
        sa.Column("updated", _MOMENT, nullable=False),
        sa.Column("recorded", _MOMENT, nullable=False),
        sa.Column("baseline", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_runs"),
        sa.UniqueConstraint("project", "run", "started", name="uq_runs_project"),
    )
    op.create_index("ix_runs_started", "runs", ["started"])
    op.create_table(
        "merged_shards",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("run_id", sa.Integer, nullable=False),
        sa.Column("run", sa.String, nullable=False),
        sa.Column("started", _MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_merged_shards"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_merged_shards_run_id_runs", ondelete="CASCADE"),
        sa.UniqueConstraint("run_id", "run", "started", name="uq_merged_shards_run_id"),
    )
    op.create_index("ix_merged_shards_run_id", "merged_shards", ["run_id"])
    op.create_index("ix_merged_shards_run", "merged_shards", ["run"])


def _create_results() -> None:
    op.create_table(
        "results",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("run_id", sa.Integer, nullable=False),
        sa.Column("cell_id", sa.Integer, nullable=False),
        sa.Column("step", sa.String, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("verdict", sa.String),
        sa.Column("cause", sa.String),
        sa.Column("message", sa.String, nullable=False),
        sa.Column("counts", sa.Boolean, nullable=False),
        sa.Column("seconds", sa.Double),
        sa.Column("fingerprint", sa.String, nullable=False),
        sa.Column("target", sa.String, nullable=False),
        sa.Column("host", sa.String, nullable=False),
        sa.Column("accelerator", sa.String, nullable=False),
        sa.Column("cost", sa.Double),
        sa.Column("out_of_range", sa.Boolean, nullable=False),
        sa.Column("reuse_key", sa.String, nullable=False),
        sa.Column("reused_from", sa.String, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_results"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_results_run_id_runs", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["cell_id"], ["cells.id"], name="fk_results_cell_id_cells"),
        sa.UniqueConstraint("run_id", "cell_id", name="uq_results_run_id"),
    )
    op.create_index("ix_results_cell_id", "results", ["cell_id"])
    op.create_index("ix_results_reuse_key", "results", ["reuse_key"])
    op.create_table(
        "attempts",
        sa.Column("result_id", sa.Integer, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("target", sa.String, nullable=False),
        sa.Column("accelerator", sa.String, nullable=False),
        sa.Column("revision", sa.String, nullable=False),
        sa.Column("deviates", sa.Boolean, nullable=False),
        sa.Column("submitted", _MOMENT, nullable=False),
        sa.Column("verdict", sa.String),
        sa.Column("cause", sa.String),
        sa.Column("message", sa.String, nullable=False),
        sa.Column("seconds", sa.Double),
        sa.Column("out_of_range", sa.Boolean, nullable=False),
        sa.Column("image", sa.String, nullable=False),
        sa.Column("purpose", sa.String, nullable=False),
        sa.Column("charged_seconds", sa.Double),
        sa.Column("cost", sa.Double),
        sa.PrimaryKeyConstraint("result_id", "attempt", name="pk_attempts"),
        sa.ForeignKeyConstraint(
            ["result_id"], ["results.id"], name="fk_attempts_result_id_results", ondelete="CASCADE"
        ),
    )
    op.create_table(
        "checks",
        sa.Column("result_id", sa.Integer, nullable=False),
        sa.Column("position", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("check", sa.String, nullable=False),
        sa.Column("passed", sa.Boolean),
        sa.Column("message", sa.String, nullable=False),
        sa.Column("file", sa.String, nullable=False),
        sa.Column("line", sa.Integer),
        sa.PrimaryKeyConstraint("result_id", "position", name="pk_checks"),
        sa.ForeignKeyConstraint(["result_id"], ["results.id"], name="fk_checks_result_id_results", ondelete="CASCADE"),
    )
    op.create_table(
        "samples",
        sa.Column("series_id", sa.Integer, nullable=False),
        sa.Column("run_id", sa.Integer, nullable=False),
        sa.Column("value", sa.Double),
        sa.Column("fault", sa.String, nullable=False),
        sa.Column("accepted", sa.Boolean, nullable=False),
        sa.Column("noisy", sa.Boolean, nullable=False),
        sa.Column("confirmed", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("series_id", "run_id", name="pk_samples"),
        sa.ForeignKeyConstraint(["series_id"], ["series.id"], name="fk_samples_series_id_series", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_samples_run_id_runs", ondelete="CASCADE"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_samples_run_id", "samples", ["run_id"])


def _create_cases() -> None:
    op.create_table(
        "cases",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("cell_id", sa.Integer, nullable=False),
        sa.Column("suite", sa.String, nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_cases"),
        sa.ForeignKeyConstraint(["cell_id"], ["cells.id"], name="fk_cases_cell_id_cells"),
        sa.UniqueConstraint("cell_id", "suite", "name", name="uq_cases_cell_id"),
    )
    op.create_table(
        "case_counts",
        sa.Column("result_id", sa.Integer, nullable=False),
        sa.Column("outcome", sa.String, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("result_id", "outcome", name="pk_case_counts"),
        sa.ForeignKeyConstraint(
            ["result_id"], ["results.id"], name="fk_case_counts_result_id_results", ondelete="CASCADE"
        ),
    )
    op.create_table(
        "case_results",
        sa.Column("result_id", sa.Integer, nullable=False),
        sa.Column("case_id", sa.Integer, nullable=False),
        sa.Column("outcome", sa.String, nullable=False),
        sa.Column("seconds", sa.Double),
        sa.Column("message", sa.String, nullable=False),
        sa.Column("text", sa.String, nullable=False),
        sa.PrimaryKeyConstraint("result_id", "case_id", name="pk_case_results"),
        sa.ForeignKeyConstraint(
            ["result_id"], ["results.id"], name="fk_case_results_result_id_results", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["case_id"], ["cases.id"], name="fk_case_results_case_id_cases"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_case_results_case_id", "case_results", ["case_id"])


def _create_notifications() -> None:
    op.create_table(
        "notifications",
        sa.Column("id", sa.Integer, nullable=False),
        *(sa.Column(name, sa.String, nullable=False) for name in ("project", "presets", "job", "receiver")),
        sa.Column("announced", sa.String, nullable=False),
        sa.Column("announced_run", sa.String, nullable=False),
        sa.Column("latest_start", _MOMENT, nullable=False),
        sa.Column("delivering_until", _MOMENT),
        sa.PrimaryKeyConstraint("id", name="pk_notifications"),
        sa.UniqueConstraint("project", "presets", "job", "receiver", name="uq_notifications_project"),
    )
