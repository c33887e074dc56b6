"""What a crawl's processes share of sessions: cookies, `spider.state`, who logs in."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKey,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)

from scrapy_itemgraph.postgres.tables.base import metadata, moment

cookies = Table(
    "cookies",
    metadata,
    Column("crawl_id", Integer, nullable=False),
    Column("jar", Text, nullable=False, comment="the jar's key as JSON; null for the default jar"),
    Column("domain", Text, nullable=False),
    Column("path", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("cookie", JSON(none_as_null=True), comment="null: the cookie was deleted"),
    moment("changed_at", now=True),
    Column(
        "expires_at",
        DateTime(timezone=True),
        comment="when it expires, or was deleted; null: not by itself",
    ),
    PrimaryKeyConstraint("crawl_id", "jar", "domain", "path", "name"),
    Index("cookies_changed_idx", "crawl_id", "jar", "domain", "changed_at"),
    Index("cookies_expires_at_idx", "expires_at", postgresql_where=text("expires_at IS NOT NULL")),
)


spider_state = Table(
    "spider_state",
    metadata,
    Column("crawl_id", Integer, ForeignKey("crawls.id", ondelete="CASCADE"), nullable=False),
    Column("key", Text, nullable=False, comment="a key of spider.state as JSON"),
    Column("value", JSON(none_as_null=True), comment="null: the key was deleted"),
    moment("changed_at", now=True),
    PrimaryKeyConstraint("crawl_id", "key"),
)


logins = Table(
    "logins",
    metadata,
    Column("crawl_id", Integer, ForeignKey("crawls.id", ondelete="CASCADE"), primary_key=True),
    Column("generation", Integer, nullable=False, server_default=text("0")),
    Column("worker_id", Integer, comment="who logs in just now"),
    moment("renewed_at"),
    CheckConstraint("generation BETWEEN 0 AND 1073741824", name="generation"),
)
