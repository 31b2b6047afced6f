"""Add the table that says which messages about the runs of a series were delivered."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add the table. For older series, it is assumed that no failure was announced."""
    op.create_table(
        "notifications",
        sa.Column("id", sa.Integer, primary_key=True),
        *(sa.Column(name, sa.String, nullable=False) for name in ("project", "presets", "job", "receiver")),
        sa.Column("announced", sa.String, nullable=False),
        sa.Column("announced_run", sa.String, nullable=False),
        sa.Column("latest_start", sa.DateTime(timezone=True), nullable=False),
        sa.Column("delivering_until", sa.DateTime(timezone=True)),
        sa.UniqueConstraint("project", "presets", "job", "receiver", name="uq_notifications_project"),
    )
