"""The journal of scraped items, and feeds that are written from it."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    DateTime,
    ForeignKey,
    Identity,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    func,
    text,
)

from scrapy_itemgraph.postgres.tables.base import metadata

journal = Table(
    "journal",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("crawl_id", Integer, nullable=False),
    Column("item_id", BigInteger, comment="the item under work; it may be gone by now"),
    Column("task_id", Integer),
    Column("item_class", Text, nullable=False, comment="an import path, or dict"),
    Column("fields", JSON, nullable=False),
    Column(
        "created_at",
        DateTime(timezone=True),
        nullable=False,
        server_default=func.clock_timestamp(),
    ),
    Index("journal_crawl_id_id_idx", "crawl_id", "id"),
)


feeds = Table(
    "feeds",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("crawl_id", Integer, ForeignKey("crawls.id", ondelete="CASCADE"), nullable=False),
    Column("name", Text, nullable=False, comment="the template of its URI, without credentials"),
    Column("run", Integer, comment="the number of the run that it takes part in"),
    Column("token", Uuid, comment="its writer's"),
    Column("uri", Text, comment="where it is being written; null: that has not begun"),
    Column("batch", Integer, nullable=False, server_default=text("1")),
    Column("count", BigInteger, nullable=False, server_default=text("0"), comment="of items there"),
    Column("size", BigInteger, comment="bytes of the file that stand, whatever comes after them"),
    Column("mark", BigInteger, comment="a digest of what stands before the end of these bytes"),
    Column("file", Text, comment="the host and the path of the file, where it is one"),
    Column(
        "begins",
        JSON,
        comment="by file: the size that it had before this run, and the mark of that place",
    ),
    UniqueConstraint("crawl_id", "name"),
)


feed_items = Table(
    "feed_items",
    metadata,
    Column("feed_id", Integer, nullable=False),
    Column("journal_id", BigInteger, nullable=False),
    Column(
        "is_written",
        Boolean,
        nullable=False,
        server_default=text("false"),
        comment="of a feed that is written whole; of another one the row goes",
    ),
    PrimaryKeyConstraint("feed_id", "journal_id"),
    Index(
        "feed_items_unwritten_idx",
        "feed_id",
        "journal_id",
        postgresql_where=text("NOT is_written"),
    ),
)
