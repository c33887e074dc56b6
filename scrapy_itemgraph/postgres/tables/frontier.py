"""Queues of a URL frontier, whose URLs other crawlers take, and the servers that hand them out.

Moments are whole seconds since 1970, as the URLFrontier API has them: any that 63 bits can say. The
URLs themselves are items, and what is to be fetched of them is work.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    SmallInteger,
    Table,
    Text,
    text,
)

from scrapy_itemgraph.postgres.tables.base import metadata, stored

frontier_queues = Table(
    "frontier_queues",
    metadata,
    Column(
        "queue_id",
        Integer,
        ForeignKey("queues.id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("crawl_id", Integer, nullable=False),
    Column("delay", BigInteger, comment="seconds between two hand-outs; null: the default"),
    Column("blocked_until", BigInteger, nullable=False, server_default=text("0")),
    Column("last_served", BigInteger, nullable=False, server_default=text("0")),
    Column("crawl_limit", BigInteger, comment="nothing is handed out once so many are completed"),
    Column(
        "completed",
        BigInteger,
        nullable=False,
        server_default=text("0"),
        comment="how many are, where there is a limit; else not counted",
    ),
    Column(
        "is_deleting",
        Boolean,
        nullable=False,
        server_default=text("false"),
        comment="its URLs are being deleted, a part at a time",
    ),
    Column("deleted_by", Integer, comment="the process that deletes its URLs"),
    CheckConstraint(
        "delay >= 0 AND blocked_until >= 0 AND last_served >= 0 AND crawl_limit > 0 "
        "AND completed >= 0",
        name="numbers",
    ),
    Index("frontier_queues_crawl_id_queue_id_idx", "crawl_id", "queue_id"),
    Index(
        "frontier_queues_deleting_idx",
        "crawl_id",
        "queue_id",
        postgresql_where=text("is_deleting"),
    ),
    Index(
        "frontier_queues_limited_idx",
        "crawl_id",
        postgresql_where=text("crawl_limit IS NOT NULL"),
    ),
)
stored(frontier_queues, fillfactor="50")


# One row: what holds for all queues of all crawls.
frontier = Table(
    "frontier",
    metadata,
    Column("id", SmallInteger, primary_key=True, autoincrement=False),
    Column(
        "is_active",
        Boolean,
        nullable=False,
        server_default=text("true"),
        comment="false: nothing is handed out",
    ),
    Column(
        "default_delay",
        BigInteger,
        nullable=False,
        server_default=text("1"),
        comment="seconds between two hand-outs of a queue",
    ),
    CheckConstraint("id = 1", name="id"),
    CheckConstraint("default_delay >= 0", name="default_delay"),
)


frontier_nodes = Table(
    "frontier_nodes",
    metadata,
    Column(
        "process_id",
        Integer,
        ForeignKey("processes.id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("address", Text, nullable=False, comment="host:port, as its clients reach it"),
    Column(
        "is_active",
        Boolean,
        nullable=False,
        server_default=text("true"),
        comment="false: this server hands nothing out",
    ),
)
