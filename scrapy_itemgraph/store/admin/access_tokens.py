"""Tokens of the HTTP door, and sessions of browsers: made, listed, removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.model.access_tokens import SESSION, Keys, Role, Token

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

MOST_SESSIONS = 100  # of a token: browsers that log in again and again leave sessions behind
SESSIONS = text("""
    SELECT s.digest, t.digest AS token FROM web_sessions s JOIN tokens t ON t.name = s.token_name
    WHERE s.expires_at > clock_timestamp()
""")
ADD_SESSION = text("""
    INSERT INTO web_sessions (digest, token_name, expires_at)
    SELECT :digest, name, clock_timestamp() + CAST(:period AS interval)
    FROM tokens WHERE digest = :token
    RETURNING token_name
""")
REMOVE_SESSION = text("DELETE FROM web_sessions WHERE digest = :digest")
PRUNE_SESSIONS = text("""
    DELETE FROM web_sessions WHERE ctid = ANY (ARRAY(
        SELECT s.ctid FROM web_sessions s WHERE s.expires_at <= clock_timestamp()
        FOR UPDATE SKIP LOCKED))
""")
SURPLUS_SESSIONS = text("""
    DELETE FROM web_sessions WHERE ctid = ANY (ARRAY(
        SELECT s.ctid FROM web_sessions s WHERE s.token_name = :name
        ORDER BY s.created_at DESC, s.digest OFFSET :most
        FOR UPDATE SKIP LOCKED))
""")


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
    rows = connection.execute(SESSIONS)
    sessions = {bytes(row.digest): bytes(row.token) for row in rows}
    return Keys(found, sessions, connection.execute(LAST_MADE).scalar())


def add_session(connection: Connection, digest: bytes, token: bytes) -> bool:
    """Store the session of a token, by both digests; return whether there is such a token.

    What has expired is deleted, and of this token's what is older than the last hundred.
    """
    given = {"digest": digest, "token": token, "period": SESSION}
    name = connection.execute(ADD_SESSION, given).scalar()
    if name is None:
        return False
    connection.execute(PRUNE_SESSIONS)
    connection.execute(SURPLUS_SESSIONS, {"name": name, "most": MOST_SESSIONS})
    return True


def remove_session(connection: Connection, digest: bytes) -> None:
    """Delete a session, if there is one."""
    connection.execute(REMOVE_SESSION, {"digest": digest})


def _by_digest(connection: Connection) -> dict[bytes, Token]:
    rows = connection.execute(ALL)
    return {bytes(row.digest): Token(row.name, Role(row.role), row.created_at) for row in rows}
