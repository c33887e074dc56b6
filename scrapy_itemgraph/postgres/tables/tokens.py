"""Tokens of the HTTP door, for all crawls of the database."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, LargeBinary, Table, Text

from scrapy_itemgraph.postgres.tables.base import metadata, moment

tokens = Table(
    "tokens",
    metadata,
    Column("name", Text, primary_key=True),
    Column("digest", LargeBinary, nullable=False, unique=True, comment="SHA-256 of the secret"),
    Column("role", Text, nullable=False),
    moment("created_at", now=True),
    CheckConstraint("role IN ('read', 'operate')", name="role"),
)
