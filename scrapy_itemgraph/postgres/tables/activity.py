"""What was done: in each minute of the last day, and in all; for people to look at."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    ARRAY,
    JSON,
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    ForeignKey,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    UniqueConstraint,
    Uuid,
    text,
)

from scrapy_itemgraph.postgres.tables.base import metadata, moment, sayable, statuses

task_minutes = Table(
    "task_minutes",
    metadata,
    Column("crawl_id", Integer, nullable=False),
    Column("minute", DateTime(timezone=True), nullable=False),
    Column("task_id", Integer, nullable=False, comment="0: seeds and start(), which are of none"),
    *(
        Column(name, BigInteger, nullable=False, server_default=text("0"))
        for name in ("done", "retried", "failed", "refused", "gone", "items", "scraped")
    ),
    Column(
        "seconds",
        Double,
        nullable=False,
        server_default=text("0"),
        comment="that executions took, from when the engine got them",
    ),
    PrimaryKeyConstraint("crawl_id", "minute", "task_id"),
    Index("task_minutes_minute_idx", "minute"),
)


# Small and kept: a row of each crawl and task, of all that its workers told.
totals = Table(
    "totals",
    metadata,
    Column("crawl_id", Integer, ForeignKey("crawls.id", ondelete="CASCADE"), nullable=False),
    Column("task_id", Integer, nullable=False, comment="0: what is of no task"),
    *(
        Column(name, BigInteger, nullable=False, server_default=text("0"))
        for name in ("done", "retried", "failed", "refused", "gone", "items", "scraped", "bytes")
    ),
    statuses(),
    PrimaryKeyConstraint("crawl_id", "task_id"),
)


# Failures that are alike, a row of each crawl and fingerprint: it outlives their handling.
failure_groups = Table(
    "failure_groups",
    metadata,
    Column("crawl_id", Integer, ForeignKey("crawls.id", ondelete="CASCADE"), nullable=False),
    Column("fingerprint", Uuid, nullable=False),
    Column("number", Integer, nullable=False, comment="of those of its crawl, from 1"),
    moment("first_seen", null=False),
    moment("last_seen", null=False),
    Column("times", BigInteger, nullable=False, comment="failures of it that workers told of"),
    Column(
        "runs",
        JSON,
        nullable=False,
        comment="how many of them by run; the last ten runs that had some",
    ),
    PrimaryKeyConstraint("crawl_id", "fingerprint"),
    UniqueConstraint("crawl_id", "number"),
    CheckConstraint("number BETWEEN 1 AND 1073741824", name="number"),
    sayable("first_seen", "last_seen"),
    Index("failure_groups_last_seen_idx", "last_seen"),
)


def _histogram() -> tuple[Column[Any], Column[Any]]:
    said = "how many came within each bound and not the one before; the last: later"
    together = "that they took, all of them together"
    return (
        Column("answers", ARRAY(BigInteger), nullable=False, comment=said),
        Column("seconds", Double, nullable=False, comment=together),
    )


# In how many seconds websites answered: of each task, and of each slot for all crawls.
task_latencies = Table(
    "task_latencies",
    metadata,
    Column("crawl_id", Integer, ForeignKey("crawls.id", ondelete="CASCADE"), nullable=False),
    Column("task_id", Integer, nullable=False, comment="0: what is of no task"),
    *_histogram(),
    PrimaryKeyConstraint("crawl_id", "task_id"),
)


slot_latencies = Table(
    "slot_latencies",
    metadata,
    Column("limit_id", Integer, primary_key=True, autoincrement=False),
    moment("told_at", null=False),
    *_histogram(),
    Index("slot_latencies_told_at_idx", "told_at"),
)


limit_minutes = Table(
    "limit_minutes",
    metadata,
    Column("limit_id", Integer, nullable=False),
    Column("minute", DateTime(timezone=True), nullable=False),
    Column("requests", BigInteger, nullable=False),
    PrimaryKeyConstraint("limit_id", "minute"),
    Index("limit_minutes_minute_idx", "minute"),
)
