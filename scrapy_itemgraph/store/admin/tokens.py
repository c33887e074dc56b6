"""Tokens of the HTTP door: made, listed, removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.model.tokens import Keys, Role, Token

if TYPE_CHECKING:
    from sqlalchemy import Connection

ADD = text("""
    INSERT INTO tokens (name, digest, role) VALUES (:name, :digest, :role)
    ON CONFLICT (name) DO NOTHING
""")
# Later than any before, so that it tells whether there was one since.
NOTE_MADE = text("""
    INSERT INTO tokens_made AS m (id, last_at) VALUES (1, clock_timestamp())
    ON CONFLICT (id) DO UPDATE
    SET last_at = greatest(excluded.last_at, m.last_at + interval '1 microsecond')
""")
LAST_MADE = text("SELECT last_at FROM tokens_made")
REMOVE = text("DELETE FROM tokens WHERE name = :name")
ALL = text("SELECT name, role, created_at, digest FROM tokens ORDER BY name")


def add(connection: Connection, name: str, role: Role, digest: bytes) -> bool:
    """Store a token, and return whether its name was free."""
    given = {"name": name, "role": str(role), "digest": digest}
    is_made = connection.execute(ADD, given).rowcount > 0
    if is_made:
        connection.execute(NOTE_MADE)
    return is_made


def remove(connection: Connection, name: str) -> bool:
    """Delete a token, and return whether there was one."""
    return connection.execute(REMOVE, {"name": name}).rowcount > 0


def every(connection: Connection) -> list[Token]:
    """Return all tokens, in the order of their names."""
    return list(_by_digest(connection).values())


def keys(connection: Connection) -> Keys:
    """Return all that lets in, and when a token was last made.

    The latter is read last: whoever sees no token sees that there was one.
    """
    found = _by_digest(connection)
    return Keys(found, connection.execute(LAST_MADE).scalar())


def _by_digest(connection: Connection) -> dict[bytes, Token]:
    rows = connection.execute(ALL)
    return {bytes(row.digest): Token(row.name, Role(row.role), row.created_at) for row in rows}
