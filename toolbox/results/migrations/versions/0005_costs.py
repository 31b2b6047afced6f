"""Add the purpose and the cost of each attempt, so that retries and confirmations differ from other attempts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

_RETRIES = """
    UPDATE attempts SET purpose = 'retry' WHERE EXISTS (
        SELECT 1 FROM attempts AS earlier
        WHERE earlier.result_id = attempts.result_id AND earlier.attempt < attempts.attempt
    )
"""
_CONFIRMATIONS = """
    UPDATE attempts SET purpose = 'confirmation' WHERE EXISTS (
        SELECT 1 FROM attempts AS earlier
        WHERE earlier.result_id = attempts.result_id AND earlier.attempt = attempts.attempt - 1 AND earlier.deviates
    )
"""
# An older store contains only the cost of all attempts of a cell together. The attempts of a cell usually have the same
# price, so this migration divides the cost by their times.
_COSTS = """
    UPDATE attempts SET cost = (
        SELECT CASE WHEN sum(each.seconds) > 0 THEN results.cost * attempts.seconds / sum(each.seconds)
        ELSE results.cost END
        FROM attempts AS each JOIN results ON results.id = each.result_id
        WHERE each.result_id = attempts.result_id GROUP BY results.cost
    )
    WHERE seconds IS NOT NULL
"""


def upgrade() -> None:
    """Add the columns, and fill them from the other columns."""
    op.add_column("attempts", sa.Column("purpose", sa.String, nullable=False, server_default="first"))
    for column in ("charged_seconds", "cost"):
        op.add_column("attempts", sa.Column(column, sa.Double))
    for statement in (_RETRIES, _CONFIRMATIONS, _COSTS):
        op.execute(statement)
