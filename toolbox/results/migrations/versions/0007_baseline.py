"""Add whether a run is part of the baseline, from which bounds, changes and flakiness are computed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add the column. Until now, all runs were part of the baseline."""
    op.add_column("runs", sa.Column("baseline", sa.Boolean, nullable=False, server_default=sa.true()))
