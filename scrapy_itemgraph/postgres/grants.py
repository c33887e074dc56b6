"""Grants: what each kind of role may do with the tables, as GRANT statements.

Kinds separate what is done: reading, scheduling, working, changing the tables. They do not separate
rows: whoever may read one crawl of a database reads all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import sql
from sqlalchemy import text

from scrapy_itemgraph.exceptions import NotFoundError, OperationError
from scrapy_itemgraph.model.roles import Grants, RoleKind
from scrapy_itemgraph.postgres.migrate import VERSION_TABLE
from scrapy_itemgraph.postgres.tables import metadata

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from sqlalchemy import Connection


# What is written by whoever says from outside what is to be done: items, their work, limits. Not
# what workers alone write: claims of theirs, attempts, scraped items, sessions, tasks' definitions.
_WRITTEN_BY_SCHEDULERS = {
    "crawls": "INSERT, UPDATE",
    "crawl_events": "INSERT",
    "jobs": "INSERT, UPDATE",
    "schedules": "INSERT, UPDATE, DELETE",
    "places": "UPDATE",
    "rulesets": "INSERT",
    "depths": "INSERT, UPDATE, DELETE",  # of crawls that track them, with their items
    "links": "INSERT, UPDATE, DELETE",
    "depth_work": "INSERT, UPDATE, DELETE",
    "depth_sweeps": "INSERT, UPDATE, DELETE",
    "sweeps": "INSERT, UPDATE, DELETE",  # rules that are applied to what waits
    "notices": "INSERT",
    "items": "INSERT, UPDATE, DELETE",
    "aliases": "INSERT, UPDATE, DELETE",
    "tags": "INSERT, UPDATE, DELETE",
    "results": "INSERT, UPDATE, DELETE",
    "page_links": "DELETE",  # with their items
    "blobs": "INSERT, UPDATE, DELETE",
    "blob_contents": "INSERT, UPDATE, DELETE",
    "failures": "UPDATE",
    "work": "INSERT, UPDATE, DELETE",
    "attempts": "UPDATE, DELETE",  # they go with a merged item, and with a deleted one
    "queues": "INSERT, UPDATE",
    "limits": "INSERT, UPDATE",
    "salts": "UPDATE",  # locked by who adds a crawl
    "runs": "INSERT",  # a crawl's first one
    "tasks": "UPDATE",
    "web_sessions": "INSERT, UPDATE, DELETE",  # of browsers that log in where such a role serves
}

PLACE = text("""
    SELECT current_database() AS database, n.nspname AS schema,
        pg_get_userbyid(c.relowner) AS owner, pg_has_role(c.relowner, 'USAGE') AS is_ours
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = CAST(:versions AS regclass)
""")

IS_MANAGER = text("""
    SELECT EXISTS (SELECT FROM pg_auth_members m
        WHERE pg_get_userbyid(m.member) = :role AND pg_get_userbyid(m.roleid) = :owner)
""")

SEQUENCES = text("""
    SELECT DISTINCT s.relname FROM unnest(CAST(:tables AS text[])) AS ours(name)
    JOIN pg_depend d ON d.refobjid = CAST(quote_ident(ours.name) AS regclass)
    JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S'
    ORDER BY s.relname
""")


def quote(name: str) -> str:
    """Return a name as SQL has it, in quotation marks."""
    return sql.Identifier(name).as_string()


def of_kind(connection: Connection, kind: RoleKind, role: str) -> Grants:
    """Return what gives `role` the rights of a kind; what it had before to the tables is revoked.

    Later tables are granted to workers and read-only roles as they are made; for schedulers it is
    to be done again after a migration.
    """
    place = connection.execute(PLACE, {"versions": VERSION_TABLE}).one()
    schema, to = quote(place.schema), quote(role)
    if kind is RoleKind.MANAGER:
        # Whoever alters a table must own it.
        return Grants(kind, role, (f"GRANT {quote(place.owner)} TO {to}",))

    def named(names: list[str]) -> str:
        return ", ".join(f"{schema}.{quote(name)}" for name in names)

    tables = sorted(metadata.tables)  # but the schema's version, which migrations alone write
    found = connection.execute(SEQUENCES, {"tables": tables}).scalars()
    sequences = named(list(found))
    everything = named([*tables, VERSION_TABLE])
    later = f"ALTER DEFAULT PRIVILEGES FOR ROLE {quote(place.owner)} IN SCHEMA {schema}"
    given = [
        f"GRANT CONNECT ON DATABASE {quote(place.database)} TO {to}",
        f"GRANT USAGE ON SCHEMA {schema} TO {to}",
        f"REVOKE ALL ON TABLE {everything} FROM {to}",
        f"REVOKE ALL ON SEQUENCE {sequences} FROM {to}",
        f"{later} REVOKE ALL ON TABLES FROM {to}",
        f"{later} REVOKE ALL ON SEQUENCES FROM {to}",
        f"GRANT SELECT ON TABLE {everything} TO {to}",
    ]
    if connection.execute(IS_MANAGER, {"role": role, "owner": place.owner}).scalar_one():
        given.insert(0, f"REVOKE {quote(place.owner)} FROM {to}")
    if kind is RoleKind.READ_ONLY:
        given.append(f"{later} GRANT SELECT ON TABLES TO {to}")
        return Grants(kind, role, tuple(given))
    given.append(f"GRANT USAGE ON SEQUENCE {sequences} TO {to}")
    if kind is RoleKind.WORKER:
        given += [
            f"GRANT INSERT, UPDATE, DELETE ON TABLE {named(tables)} TO {to}",
            f"{later} GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {to}",
            f"{later} GRANT USAGE ON SEQUENCES TO {to}",
        ]
    else:
        given += [
            f"GRANT {rights} ON TABLE {named([table])} TO {to}"
            for table, rights in _WRITTEN_BY_SCHEDULERS.items()
        ]
    return Grants(kind, role, tuple(given))


def schema(connection: Connection) -> str:
    """Return the name of the schema that has the tables."""
    return str(connection.execute(PLACE, {"versions": VERSION_TABLE}).one().schema)


def apply(connection: Connection, statements: Iterable[str], *, roles: Collection[str]) -> None:
    """Carry out statements that give roles rights.

    Raises:
        NotFoundError: there is no such role.
        OperationError: somebody else owns the tables, or the role is the owner itself.

    """
    place = connection.execute(PLACE, {"versions": VERSION_TABLE}).one()
    known = text("SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = :role)")
    for role in roles:
        if not connection.execute(known, {"role": role}).scalar_one():
            raise NotFoundError(
                f"the server has no role {role!r}; make it first, as one who may: "
                f"CREATE ROLE {role} LOGIN PASSWORD '…'"
            )
    if not place.is_ours:
        raise OperationError(
            f"the tables belong to {place.owner!r}, who alone grants rights to them: run this with "
            "that role in ITEMGRAPH_DATABASE_URL, or without --apply and give it the lines"
        )
    if place.owner in roles:
        raise OperationError(f"{place.owner!r} owns the tables and may do everything already")
    for statement in statements:
        connection.exec_driver_sql(statement.replace("%", "%%"))  # no place for a parameter
