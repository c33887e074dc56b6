"""Limits, slots among them, whose they are, and what keeps to them."""

from __future__ import annotations

from sqlalchemy import (
    ARRAY,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from scrapy_itemgraph.postgres.tables.base import metadata, moment, sayable, stored

limits = Table(
    "limits",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("kind", Text, nullable=False, server_default=text("'slot'")),
    Column("name", Text, nullable=False, comment="of a slot Scrapy's download slot; '' for none"),
    Column("gap", Double, comment="seconds between starts, as its last holder kept it"),
    Column("concurrency", Integer, comment="likewise; null: no cap"),
    Column("delay", Double, comment="the gap that is meant, where jitter makes some shorter"),
    Column("set_gap", Double, comment="what a person set; null: as the settings say"),
    Column("set_concurrency", Integer),
    Column("crawl_delay", Double, comment="seconds, from robots.txt"),
    Column("throttle", Double, comment="seconds, as AutoThrottle left it"),
    Column("latency", Double, comment="seconds that slow downloads took lately"),
    moment("last_at"),
    moment("blocked_until"),
    Column("blocked_by", Text, comment="'person', or what the site answered"),
    UniqueConstraint("kind", "name"),
    sayable("last_at", "blocked_until"),
    CheckConstraint(
        "gap >= 0 AND gap < 'Infinity' AND delay >= 0 AND delay < 'Infinity' "
        "AND throttle >= 0 AND throttle < 'Infinity' AND latency >= 0 AND latency < 'Infinity'",
        name="delays",
    ),
    CheckConstraint("set_gap BETWEEN 0.001 AND 86400", name="set_gap"),
    CheckConstraint("crawl_delay BETWEEN 0.001 AND 86400", name="crawl_delay"),
    CheckConstraint("concurrency >= 1 AND set_concurrency >= 1", name="concurrency"),
)
stored(limits, fillfactor="50")


holdings = Table(
    "holdings",
    metadata,
    Column("limit_id", Integer, nullable=False),
    Column("worker_id", Integer, nullable=False),
    Column("units", Integer, nullable=False, comment="of the limit's concurrency; 0: it waits"),
    Column("is_exclusive", Boolean, nullable=False, comment="the limit has a gap to keep"),
    moment("since", now=True),
    Column("asked_at", DateTime(timezone=True), comment="when it asked last for what it lacks"),
    Column("until", DateTime(timezone=True), comment="the holder is gone; not free before"),
    PrimaryKeyConstraint("limit_id", "worker_id"),
    sayable("since", "asked_at", "until"),
    CheckConstraint("units >= 0", name="units"),
    Index("holdings_worker_id_limit_id_idx", "worker_id", "limit_id"),
)
stored(holdings, fillfactor="50")


tag_limits = Table(
    "tag_limits",
    metadata,
    Column("task_id", Integer, ForeignKey("tasks.id", ondelete="CASCADE"), nullable=False),
    Column("limit_id", Integer, ForeignKey("limits.id"), nullable=False),
    Column("tags", ARRAY(Text), nullable=False, comment="an item with all of them keeps to it"),
    PrimaryKeyConstraint("task_id", "limit_id"),
)
