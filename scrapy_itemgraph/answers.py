"""Answers: that a commit of what no claim fences was made, should its answer be lost on the way.

All functions take a connection and never commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

if TYPE_CHECKING:
    import uuid

    from sqlalchemy import Connection

TAKE = text("INSERT INTO answers (token) VALUES (:token) ON CONFLICT DO NOTHING RETURNING token")

FORGET = text("DELETE FROM answers WHERE committed_at < now() - interval '1 day'")


def take(connection: Connection, token: uuid.UUID) -> bool:
    """Note that a commit is made by this transaction; False if one before did it already."""
    return connection.execute(TAKE, {"token": token}).first() is not None


def forget(connection: Connection) -> None:
    """Forget what nobody asks for any more."""
    connection.execute(FORGET)
