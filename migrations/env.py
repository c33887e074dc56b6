"""How Alembic runs our migrations: on the connection that `postgres.migrate` hands over.

To write one, change `scrapy_itemgraph/postgres/tables/` and run `tests/migration/draft.py`.
"""

from __future__ import annotations

from alembic import context

from scrapy_itemgraph.postgres import migrate, tables

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=tables.metadata,
    version_table=migrate.VERSION_TABLE,
    on_version_apply=context.config.attributes.get("on_version_apply"),
)
with context.begin_transaction():
    context.run_migrations()
