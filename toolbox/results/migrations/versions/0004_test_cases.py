"""Add the tables for the test cases of cells."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Create the tables. The runs of an older store have no test cases."""
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
