"""Alembic's environment: runs the migrations on the connection that `toolbox.records.results.store` passes."""

from __future__ import annotations

from alembic import context

from toolbox.records.results.tables import METADATA

# The migrations run in the transaction of the caller.
context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA, transactional_ddl=True)
context.run_migrations()
