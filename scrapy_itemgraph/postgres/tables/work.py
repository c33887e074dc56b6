"""Outstanding work with its claims, the queues that it waits in, and how claims ended."""

from __future__ import annotations

from sqlalchemy import (
    ARRAY,
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Computed,
    DateTime,
    ForeignKey,
    Identity,
    Index,
    Integer,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    func,
    text,
)

from scrapy_itemgraph.postgres.tables.base import metadata, moment, sayable, stored

queues = Table(
    "queues",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("crawl_id", Integer, ForeignKey("crawls.id", ondelete="CASCADE"), nullable=False),
    Column("slot_id", Integer, ForeignKey("limits.id"), nullable=False),
    Column("is_live", Boolean, nullable=False, server_default=text("false")),
    Column(
        "next_at",
        DateTime(timezone=True),
        nullable=False,
        server_default=func.now(),
        comment="whose turn: the earliest goes first",
    ),
    Column("holder", Integer, comment="the worker that has the slot for itself"),
    UniqueConstraint("crawl_id", "slot_id"),
    sayable("next_at"),
    Index(
        "queues_turn_idx",
        "crawl_id",
        "next_at",
        postgresql_where=text("is_live AND holder IS NULL"),
    ),
    Index(
        "queues_held_idx",
        "crawl_id",
        "holder",
        "next_at",
        postgresql_where=text("is_live AND holder IS NOT NULL"),
    ),
    Index("queues_slot_id_idx", "slot_id"),
)
stored(queues, fillfactor="50")


_SUSPECT = "deaths >= 2 OR stalls >= 2"  # it runs alone


work = Table(
    "work",
    metadata,
    Column("item_id", BigInteger, nullable=False),
    Column("task_id", Integer, nullable=False),
    Column("crawl_id", Integer, nullable=False),
    Column("queue_id", Integer, nullable=False),
    Column("kind_id", Integer, nullable=False),
    Column("is_stale", Boolean, nullable=False),
    Column("nice", Integer, nullable=False),
    Column("seq", BigInteger, Identity(), nullable=False),
    *(
        Column(name, SmallInteger, nullable=False, server_default=text("0"))
        for name in ("tries", "deaths", "stalls", "alone_deaths", "alone_stalls")
    ),
    Column("is_suspect", Boolean, Computed(_SUSPECT, persisted=True), nullable=False),
    Column(
        "is_refiled",
        Boolean,
        nullable=False,
        server_default=text("false"),
        comment="its request turned out to have another slot than the item",
    ),
    moment("not_before"),
    Column("request", JSON, comment="where a redirect or a retry took it; null: as in the data"),
    Column("worker_id", Integer),
    Column("token", Uuid),
    moment("claimed_at"),
    PrimaryKeyConstraint("item_id", "task_id"),
    CheckConstraint("(token IS NULL) = (worker_id IS NULL)", name="claim"),
    Index(
        "work_ready_idx",
        "queue_id",
        "kind_id",
        "is_stale",
        "nice",
        "seq",
        postgresql_where=text("token IS NULL AND not_before IS NULL AND NOT is_suspect"),
    ),
    Index(
        "work_suspect_idx",
        "crawl_id",
        "is_stale",
        "nice",
        "seq",
        postgresql_where=text("token IS NULL AND not_before IS NULL AND is_suspect"),
    ),
    Index("work_claimed_idx", "worker_id", postgresql_where=text("token IS NOT NULL")),
    Index(
        "work_timer_idx",
        "crawl_id",
        "not_before",
        postgresql_where=text("not_before IS NOT NULL"),
    ),
    Index(
        "work_delayed_idx",
        "task_id",
        "is_stale",
        "nice",
        "seq",
        postgresql_where=text("not_before IS NOT NULL AND token IS NULL"),
    ),
    Index(
        "work_retry_idx",
        "crawl_id",
        "not_before",
        postgresql_where=text("not_before IS NOT NULL AND tries <> 0"),
    ),
    Index(
        "work_held_idx",
        "queue_id",
        "not_before",
        postgresql_where=text("not_before IS NOT NULL AND tries > 0"),
    ),
    Index(
        "work_dated_idx",
        "queue_id",
        postgresql_where=text("not_before IS NOT NULL AND tries = 0"),
    ),
)
stored(
    work,
    fillfactor="80",
    autovacuum_vacuum_scale_factor="0.01",
    autovacuum_vacuum_threshold="1000",
    autovacuum_vacuum_cost_delay="0",
    vacuum_truncate="off",
)


handed = Table(
    "handed",
    metadata,
    Column("worker_id", ForeignKey("workers.id", ondelete="CASCADE"), primary_key=True),
    Column("items", ARRAY(BigInteger), nullable=False),
    Column("tasks", ARRAY(Integer), nullable=False),
)


attempts = Table(
    "attempts",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("item_id", BigInteger, nullable=False),
    Column("task_id", Integer, nullable=False),
    Column("worker_id", Integer),
    Column("token", Uuid, nullable=False),
    Column("task_version", Text, nullable=False),
    Column("number", SmallInteger, nullable=False, comment="from 1"),
    Column("outcome", Text, nullable=False),
    Column("error", JSON(none_as_null=True)),
    Column(
        "log",
        JSON(none_as_null=True),
        comment="what its callbacks logged: seconds after the claim, category, message",
    ),
    moment("started_at"),
    moment("ended_at", now=True),
    Column("scraped", Integer, comment="how many items it scraped; null: none"),
    Column("ruleset_id", Integer, comment="the rules that it kept to; null: none"),
    Column(
        "page", JSON(none_as_null=True), comment="how its page was answered, where that is kept"
    ),
    Index("attempts_item_id_task_id_id_idx", "item_id", "task_id", "id"),
)


commit_tokens = Table(
    "commit_tokens",
    metadata,
    Column("token", Uuid, primary_key=True),
    moment("committed_at", now=True),
)
