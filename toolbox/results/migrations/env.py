"""What Alembic runs to bring a store up to date: on the connection that `toolbox.results.store` hands over."""

from __future__ import annotations

from alembic import context

from toolbox.results.tables import Base

# The one transaction in which it runs is the caller's.
context.configure(
    connection=context.config.attributes["connection"], target_metadata=Base.metadata, transactional_ddl=True
)
context.run_migrations()
