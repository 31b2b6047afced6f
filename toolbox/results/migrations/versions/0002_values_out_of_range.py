"""Add the columns for failures that are only values out of range, and for values that failed their cells."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

# In an older store, a failed cell with accepted values failed only because metrics were out of the ranges of earlier
# runs. The store does not contain which metrics, so this migration marks all values of the cell as confirmed.
_CONFIRMED = """
    UPDATE samples SET confirmed = true
    WHERE accepted AND NOT noisy AND EXISTS (
        SELECT 1 FROM results JOIN series ON series.cell_id = results.cell_id
        WHERE series.id = samples.series_id AND results.run_id = samples.run_id
        AND results.verdict IN ('failed', 'xfailed')
    )
"""
_RESULTS = """
    UPDATE results SET out_of_range = true
    WHERE verdict IN ('failed', 'xfailed') AND EXISTS (
        SELECT 1 FROM attempts WHERE attempts.result_id = results.id AND attempts.deviates
        AND attempts.attempt = (SELECT max(last.attempt) FROM attempts AS last WHERE last.result_id = results.id)
    )
"""


def upgrade() -> None:
    """Add the columns, and fill them from the other columns."""
    for table, column in (("attempts", "out_of_range"), ("results", "out_of_range"), ("samples", "confirmed")):
        op.add_column(table, sa.Column(column, sa.Boolean, nullable=False, server_default=sa.false()))
    op.execute("UPDATE attempts SET out_of_range = deviates")
    op.execute(_RESULTS)
    op.execute(_CONFIRMED)
