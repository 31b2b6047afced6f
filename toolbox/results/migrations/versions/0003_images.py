"""The container image that each attempt ran in, by its digest: the same name may stand for another one later."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add the column. Of older attempts the image is not known."""
    op.add_column("attempts", sa.Column("image", sa.String, nullable=False, server_default=""))
