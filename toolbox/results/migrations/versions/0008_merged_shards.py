"""Add the shards of merged runs, so that a cell is not counted in a shard and in the merged run."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Create the table. An older store has no merged runs."""
    op.create_table(
        "merged_shards",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("run_id", sa.Integer, nullable=False),
        sa.Column("run", sa.String, nullable=False),
        sa.Column("started", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_merged_shards"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_merged_shards_run_id_runs", ondelete="CASCADE"),
        sa.UniqueConstraint("run_id", "run", "started", name="uq_merged_shards_run_id"),
    )
    op.create_index("ix_merged_shards_run_id", "merged_shards", ["run_id"])
    op.create_index("ix_merged_shards_run", "merged_shards", ["run"])
