"""The schema's version: which one a database has, and bringing it up to date.

Alembic runs on the caller's connection and in its transaction; nothing here commits. It is
imported when there is something to migrate: at most starts only two versions are compared.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from scrapy_itemgraph import exceptions
from scrapy_itemgraph.tools import logs

if TYPE_CHECKING:
    from collections.abc import Callable

    from alembic.config import Config

logger = logs.logger(__name__)

VERSION_TABLE = "itemgraph_version"
UPGRADES_EARLY = "5a66684a"  # the commit that has all migrations up to the oldest one here
LOCK = int.from_bytes(b"itemgrph", "big")  # the advisory lock of whoever migrates

# This reads the catalog. `to_regclass` would answer from the session's cache: it may not know of a
# table that another start committed while this one waited for the lock.
HAS_VERSION = sa.text(
    "SELECT EXISTS (SELECT FROM pg_class WHERE relname = :table AND pg_table_is_visible(oid))"
)
VERSION = sa.text(f"SELECT version_num FROM {VERSION_TABLE}")  # noqa: S608 - our own constant


def current(connection: sa.Connection) -> str | None:
    """Return the version of the database's schema; None where it has none."""
    if not connection.scalar(HAS_VERSION, {"table": VERSION_TABLE}):
        return None
    version: str | None = connection.scalar(VERSION)
    return version


def head() -> str:
    """Return the version that this code needs: that of the last migration's file."""
    return max(_revisions())


def upgrade(connection: sa.Connection, reached: Callable[[int, int], None] | None = None) -> None:
    """Bring the schema up to date, one process at a time; `reached` hears how many of how many."""
    # The transaction's, not the session's: it suits a pooler, and ends with a crash.
    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK)))
    found = current(connection)
    if found == head():
        return
    if found is None:
        _refuse_foreign_tables(connection)
    elif found not in _revisions():
        raise _unknown(found)
    # At INFO Alembic names its plugins as it is imported, and the dialect that it meets.
    logging.getLogger("alembic").setLevel(logging.WARNING)
    from alembic import command  # noqa: PLC0415

    made = config(connection)
    made.attributes["on_version_apply"] = _teller(found, reached)
    command.upgrade(made, "head")


def is_behind(connection: sa.Connection) -> bool:
    """Tell whether the database has the schema of an older version of this code."""
    found = current(connection)
    return found is not None and found != head() and found in _revisions()


def ensure(connection: sa.Connection, *, auto: bool) -> None:
    """Make sure that the schema is this code's; migrate if `auto`, or if the database is empty.

    Another one stays as it is, and is a SchemaVersionError.
    """
    found = current(connection)
    if found == head():
        return
    if found is not None and found not in _revisions():
        raise _unknown(found)
    if auto or (found is None and not sa.inspect(connection).get_table_names()):
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
    from alembic.config import Config  # noqa: PLC0415

    made = Config(attributes={"connection": connection})
    made.set_main_option("script_location", str(_directory()).replace("%", "%%"))
    made.set_main_option("path_separator", "os")
    made.set_main_option("file_template", "%%(rev)s_%%(slug)s")
    return made


def _teller(found: str | None, reached: Callable[[int, int], None] | None) -> Callable[..., None]:
    """Return what Alembic calls after each version, with keywords that depend on its own."""
    versions = sorted(one for one in _revisions() if found is None or one > found)

    def tell(*, step: Any, **_: Any) -> None:
        version = step.up_revision_id
        number = versions.index(version) + 1
        if found is not None:
            logger.info(
                "Migrated the database to version %s (%d of %d)",
                version,
                number,
                len(versions),
                extra={"action": "migrated"},
            )
        if reached is not None:
            reached(number, len(versions))

    return tell


def _directory() -> Path:
    """Find the migrations: in the package as installed, beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for directory in (package / "migrations", package.parent / "migrations"):
        if (directory / "env.py").exists():
            return directory
    raise exceptions.DatabaseError(
        f"The migrations are missing from {package}; install scrapy-itemgraph anew."
    )


def _revisions() -> set[str]:
    """Return the versions that there are migrations for, by the names of their files."""
    return {path.name.partition("_")[0] for path in (_directory() / "versions").glob("*_*.py")}


def _unknown(found: str) -> exceptions.SchemaVersionError:
    """Return the error for a version that there is no migration for: too old, or newer."""
    if found < (oldest := min(_revisions())):
        return exceptions.SchemaVersionError(
            f"This database was made by an early scrapy-itemgraph (schema {found}, this one "
            f"upgrades {oldest} and later). Run `scrapy itemgraph migrate` with commit "
            f"{UPGRADES_EARLY} of scrapy-itemgraph first, then with this one."
        )
    return exceptions.SchemaVersionError(
        f"This database was made by a newer scrapy-itemgraph (schema {found}, this one knows "
        f"{head()}); upgrade the package."
    )


def _refuse_foreign_tables(connection: sa.Connection) -> None:
    from scrapy_itemgraph.postgres import tables  # noqa: PLC0415 - as Alembic, for a first start

    ours = {table.name for table in tables.metadata.sorted_tables}
    if taken := sorted(ours.intersection(sa.inspect(connection).get_table_names())):
        raise exceptions.DatabaseError(
            f"The database already has tables of other origin named {', '.join(taken)}. Give "
            "scrapy-itemgraph a database of its own, or a schema of its own on the search_path."
        )
