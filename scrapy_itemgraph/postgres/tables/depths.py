"""Least depths of pages, the links between them, and what of it is still to be worked out.

Only crawls that track depth have rows here. Links are arrays, for a row each would take seven times
the room; nothing here has foreign keys to items, for the reasons that `items` gives.
"""

from __future__ import annotations

from sqlalchemy import (
    ARRAY,
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Identity,
    Index,
    Integer,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    text,
)

from scrapy_itemgraph.postgres.tables.base import metadata, stored

depths = Table(
    "depths",
    metadata,
    Column("item_id", BigInteger, primary_key=True, autoincrement=False),
    Column("crawl_id", Integer, nullable=False),
    Column(
        "depth",
        Integer,
        nullable=False,
        comment="the least that is known, from 0; 2147483647: no path is known",
    ),
    Column(
        "via",
        BigInteger,
        comment="the item whose link gives it that depth; null: it has none before it",
    ),
    Column("moved_to", BigInteger, comment="the item that it was merged into"),
    Index(
        "depths_crawl_id_depth_item_id_idx",
        "crawl_id",
        "depth",
        "item_id",
        postgresql_where=text("moved_to IS NULL"),
    ),
    Index("depths_moved_to_idx", "moved_to", postgresql_where=text("moved_to IS NOT NULL")),
)
stored(
    depths,
    autovacuum_vacuum_scale_factor="0.05",
    autovacuum_vacuum_threshold="5000",
    autovacuum_vacuum_cost_delay="0",
)


links = Table(
    "links",
    metadata,
    Column("parent_id", BigInteger, nullable=False),
    Column("part", Integer, nullable=False, comment="of a page, from 0"),
    Column(
        "children",
        ARRAY(BigInteger),
        nullable=False,
        comment="up to 1,000 items; some may be gone, or merged into others",
    ),
    PrimaryKeyConstraint("parent_id", "part"),
)


depth_work = Table(
    "depth_work",
    metadata,
    Column("crawl_id", Integer, nullable=False),
    Column(
        "kind",
        SmallInteger,
        nullable=False,
        comment="0: refresh its work; 1: it may have this depth; 2: look at its links",
    ),
    Column("depth", Integer, nullable=False),
    Column("id", BigInteger, Identity(), nullable=False),
    Column("item_id", BigInteger, nullable=False),
    Column("via", BigInteger, comment="of kind 1: whose link says so; null: nobody's"),
    Column("part", Integer, comment="of kind 2: which of its links"),
    PrimaryKeyConstraint("crawl_id", "kind", "depth", "id"),
)
stored(
    depth_work,
    autovacuum_vacuum_scale_factor="0.01",
    autovacuum_vacuum_threshold="5000",
    autovacuum_vacuum_cost_delay="0",
)


depth_sweeps = Table(
    "depth_sweeps",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("crawl_id", Integer, ForeignKey("crawls.id", ondelete="CASCADE"), nullable=False),
    Column(
        "phase",
        Text,
        nullable=False,
        comment="mark, clear, roots, settle: depths are found anew; range: refresh work",
    ),
    Column("low", Integer, nullable=False, server_default=text("0")),
    Column("high", Integer, nullable=False, server_default=text("2147483647")),
    Column("after_depth", Integer, nullable=False, server_default=text("-1")),
    Column("after_item", BigInteger, nullable=False, server_default=text("0")),
    Column("swept", BigInteger, nullable=False, server_default=text("0")),
    CheckConstraint(
        "phase IN ('missing', 'mark', 'clear', 'roots', 'settle', 'range')", name="phase"
    ),
    Index("depth_sweeps_crawl_id_idx", "crawl_id"),
)
