"""Tokens of the HTTP door, for all crawls of the database, and the sessions of browsers."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, ForeignKey, LargeBinary, SmallInteger, Table, Text

from scrapy_itemgraph.postgres.tables.base import metadata, moment

tokens = Table(
    "tokens",
    metadata,
    Column("name", Text, primary_key=True),
    Column("digest", LargeBinary, nullable=False, unique=True, comment="SHA-256 of the secret"),
    Column("role", Text, nullable=False),
    moment("created_at", now=True),
    CheckConstraint("role IN ('read', 'queue', 'operate')", name="role"),
)

# One row from the first token on. It stays when they are removed: then nobody is let in.
tokens_made = Table(
    "tokens_made",
    metadata,
    Column("id", SmallInteger, primary_key=True, autoincrement=False),
    moment("last_at", null=False),
    CheckConstraint("id = 1", name="id"),
)

web_sessions = Table(
    "web_sessions",
    metadata,
    Column("digest", LargeBinary, primary_key=True, comment="SHA-256 of the cookie"),
    Column("token_name", Text, ForeignKey("tokens.name", ondelete="CASCADE"), nullable=False),
    moment("created_at", now=True),
    moment("expires_at", null=False),
)
