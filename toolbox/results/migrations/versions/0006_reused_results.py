"""Add the keys by which later runs find results to reuse, and the run from which a result was taken."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add the columns. The results of older runs are not reused."""
    for column in ("reuse_key", "reused_from"):
        op.add_column("results", sa.Column(column, sa.String, nullable=False, server_default=""))
    op.create_index("ix_results_reuse_key", "results", ["reuse_key"])
