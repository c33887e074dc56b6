"""Tokens of the HTTP door: made, listed, removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.model.tokens import Role, Token

if TYPE_CHECKING:
    from sqlalchemy import Connection

ADD = text("""
    INSERT INTO tokens (name, digest, role) VALUES (:name, :digest, :role)
    ON CONFLICT (name) DO NOTHING
""")
REMOVE = text("DELETE FROM tokens WHERE name = :name")
ALL = text("SELECT name, role, created_at, digest FROM tokens ORDER BY name")


def add(connection: Connection, name: str, role: Role, digest: bytes) -> bool:
    """Store a token, and return whether its name was free."""
    given = {"name": name, "role": str(role), "digest": digest}
    return connection.execute(ADD, given).rowcount > 0


def remove(connection: Connection, name: str) -> bool:
    """Delete a token, and return whether there was one."""
    return connection.execute(REMOVE, {"name": name}).rowcount > 0


def by_digest(connection: Connection) -> dict[bytes, Token]:
    """Return all tokens, in the order of their names."""
    rows = connection.execute(ALL)
    return {bytes(row.digest): Token(row.name, Role(row.role), row.created_at) for row in rows}
