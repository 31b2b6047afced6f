"""Add the container image of each attempt, with the digest: an image name may later refer to another image."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add the column. The images of older attempts are unknown."""
    op.add_column("attempts", sa.Column("image", sa.String, nullable=False, server_default=""))
