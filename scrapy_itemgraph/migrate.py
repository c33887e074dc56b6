"""The schema's version: which one a database has, and bringing it up to date.

Alembic runs on the caller's connection and in its transaction; nothing here commits.
"""

from __future__ import annotations

import logging
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from scrapy_itemgraph import exceptions, tables

# Alembic says at INFO which dialect it meets, at every start.
logging.getLogger("alembic.runtime.migration").setLevel(logging.WARNING)

VERSION_TABLE = "itemgraph_version"
LOCK = int.from_bytes(b"itemgrph", "big")  # the advisory lock of whoever migrates


def current(connection: sa.Connection) -> str | None:
    """Return the version of the database's schema; None where it has none."""
    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    return context.get_current_revision()


def head() -> str:
    """Return the version that this code needs."""
    revision = ScriptDirectory.from_config(config()).get_current_head()
    assert revision is not None
    return revision


def upgrade(connection: sa.Connection) -> None:
    """Bring the schema up to date, one process at a time."""
    # The transaction's, not the session's: it suits a pooler, and ends with a crash.
    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK)))
    found = current(connection)
    if found == head():
        return
    if found is None:
        _refuse_foreign_tables(connection)
    elif not _is_known(found):
        raise _newer(found)
    command.upgrade(config(connection), "head")


def ensure(connection: sa.Connection, *, auto: bool) -> None:
    """Make sure that the schema is this code's; migrate if `auto`, or if the database is empty.

    Raises:
        SchemaVersionError: it is another one, and stays as it is.

    """
    found = current(connection)
    if found == head():
        return
    if found is not None and not _is_known(found):
        raise _newer(found)
    if auto or (found is None and _is_empty(connection)):
        upgrade(connection)
        return
    # Another process may have migrated between these statements.
    if (found := current(connection)) == head():
        return
    state = f"has the schema of version {found}" if found else "has no item graph, but other tables"
    raise exceptions.SchemaVersionError(
        f"The database {state}; this scrapy-itemgraph needs version {head()}. Run "
        "`scrapy itemgraph migrate`."
    )


def config(connection: sa.Connection | None = None) -> Config:
    """Configure Alembic for our migrations, on this connection."""
    made = Config(attributes={"connection": connection})
    made.set_main_option("script_location", str(_directory()).replace("%", "%%"))
    made.set_main_option("path_separator", "os")
    made.set_main_option("file_template", "%%(rev)s_%%(slug)s")
    return made


def _directory() -> Path:
    """Find the migrations: in the package as installed, beside it in a checkout."""
    package = Path(__file__).resolve().parent
    for directory in (package / "migrations", package.parent / "migrations"):
        if (directory / "env.py").exists():
            return directory
    raise exceptions.DatabaseError(
        f"The migrations are missing from {package}; install scrapy-itemgraph anew."
    )


def _is_known(revision: str) -> bool:
    known = ScriptDirectory.from_config(config()).walk_revisions()
    return revision in {script.revision for script in known}


def _newer(found: str) -> exceptions.SchemaVersionError:
    return exceptions.SchemaVersionError(
        f"This database was made by a newer scrapy-itemgraph (schema {found}, this one knows "
        f"{head()}); upgrade the package."
    )


def _is_empty(connection: sa.Connection) -> bool:
    return not sa.inspect(connection).get_table_names()


def _refuse_foreign_tables(connection: sa.Connection) -> None:
    ours = {table.name for table in tables.metadata.sorted_tables}
    if taken := sorted(ours.intersection(sa.inspect(connection).get_table_names())):
        raise exceptions.DatabaseError(
            f"The database already has tables of other origin named {', '.join(taken)}. Give "
            "scrapy-itemgraph a database of its own, or a schema of its own on the search_path."
        )
