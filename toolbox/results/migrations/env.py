"""Alembic's environment: runs the migrations on the connection that `toolbox.results.store` passes."""

from __future__ import annotations

from alembic import context

from toolbox.results.tables import METADATA

# The migrations run in the transaction of the caller.
context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA, transactional_ddl=True)
context.run_migrations()
