"""Tokens of commits: that one was made, should its answer be lost and nothing else tell of it.

That is so of what no claim fences, and of claims whose item the commit itself took away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

if TYPE_CHECKING:
    import uuid
    from collections.abc import Sequence

    from sqlalchemy import Connection

TAKE = text("""
    INSERT INTO commit_tokens (token) VALUES (:token) ON CONFLICT DO NOTHING RETURNING token
""")

NOTE = text("INSERT INTO commit_tokens (token) SELECT unnest(CAST(:tokens AS uuid[]))")

NOTED = text("SELECT token FROM commit_tokens WHERE token = ANY(CAST(:tokens AS uuid[]))")


def take(connection: Connection, token: uuid.UUID) -> bool:
    """Note that a commit is made by this transaction; False if one before did it already."""
    return connection.execute(TAKE, {"token": token}).first() is not None


def note(connection: Connection, tokens: Sequence[uuid.UUID]) -> None:
    """Note that claims, by their tokens, are ended by this transaction."""
    if tokens:
        connection.execute(NOTE, {"tokens": tokens})


def noted(connection: Connection, tokens: Sequence[uuid.UUID]) -> set[uuid.UUID]:
    """Return the tokens of claims that were noted."""
    if not tokens:
        return set()
    return set(connection.execute(NOTED, {"tokens": tokens}).scalars())
