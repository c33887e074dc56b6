"""The schema, as SQLAlchemy metadata; `migrations/` creates it.

Hot and narrow stands apart from cold and wide: `work` holds outstanding work alone, with its claim
as columns; `results`, `items` and `attempts` hold what was done. `work` and `attempts` have no
foreign keys: a cascade into them would deadlock with claims, and `refresh` keeps them true. Rows
that every commit shares (crawls, tasks, limits) are referenced without one from the large tables:
each check would take a share lock on the same row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import (
    ARRAY,
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Computed,
    DateTime,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    Interval,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    func,
    text,
)

if TYPE_CHECKING:
    from datetime import datetime

metadata = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "fk": "%(table_name)s_%(column_0_name)s_fkey",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s_check",
    }
)


def _moment(name: str, *, null: bool = True, now: bool = False) -> Column[datetime]:
    default = func.now() if now else None
    return Column(name, DateTime(timezone=True), nullable=null and not now, server_default=default)


crawls = Table(
    "crawls",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("name", Text, nullable=False),
    Column("arguments", JSON, nullable=False, server_default=text("'{}'")),
    _moment("created_at", now=True),
    _moment("run_started_at"),
    _moment("run_finished_at"),
    Column(
        "names_freed",
        BigInteger,
        nullable=False,
        server_default=text("0"),
        comment="how many commits freed names; by it workers know that what they know is outdated",
    ),
    UniqueConstraint("name"),
)

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
    _moment("last_at"),
    _moment("blocked_until"),
    Column("blocked_by", Text, comment="'person', or what the site answered"),
    UniqueConstraint("kind", "name"),
    postgresql_with={"fillfactor": "50"},
)

holdings = Table(
    "holdings",
    metadata,
    Column("limit_id", Integer, nullable=False),
    Column("worker_id", Integer, nullable=False),
    Column("units", Integer, nullable=False, comment="of the limit's concurrency; 0: it waits"),
    Column("is_exclusive", Boolean, nullable=False, comment="the limit has a gap to keep"),
    _moment("since", now=True),
    Column("asked_at", DateTime(timezone=True), comment="when it asked last for what it lacks"),
    Column("until", DateTime(timezone=True), comment="the holder is gone; not free before"),
    PrimaryKeyConstraint("limit_id", "worker_id"),
    Index("holdings_worker_id_limit_id_idx", "worker_id", "limit_id"),
    postgresql_with={"fillfactor": "50"},
)

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
    postgresql_with={"fillfactor": "50"},
)

items = Table(
    "items",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("crawl_id", Integer, nullable=False),
    Column("slot_id", Integer, nullable=False),
    Column("name", Text, nullable=False, comment="the canonical id"),
    Column("data", JSON, nullable=False),
    Column("created_by", Text, comment="an item's id, through an alias; may be broken"),
    Column("nice", Integer, comment="null: the task's"),
    _moment("not_before"),
    _moment("created_at", now=True),
    _moment("updated_at", now=True),
    Index("items_crawl_id_id_idx", "crawl_id", "id"),
)

aliases = Table(
    "aliases",
    metadata,
    Column("crawl_id", Integer, nullable=False),
    Column("key", Uuid, nullable=False, comment="the first 16 bytes of the name's SHA-256"),
    Column("name", Text, nullable=False),
    Column(
        "item_id",
        BigInteger,
        ForeignKey("items.id", ondelete="CASCADE", deferrable=True, initially="DEFERRED"),
        comment="null: the item was deleted and its name stays taken",
    ),
    PrimaryKeyConstraint("crawl_id", "key"),
    Index("aliases_item_id_idx", "item_id"),
)

tags = Table(
    "tags",
    metadata,
    Column("item_id", BigInteger, ForeignKey("items.id", ondelete="CASCADE"), nullable=False),
    Column("tag_name", Text, nullable=False),
    Column("crawl_id", Integer, nullable=False),
    Column("value", JSON(none_as_null=True)),
    PrimaryKeyConstraint("item_id", "tag_name"),
    Index("tags_crawl_id_tag_name_item_id_idx", "crawl_id", "tag_name", "item_id"),
)

tasks = Table(
    "tasks",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("crawl_id", Integer, ForeignKey("crawls.id", ondelete="CASCADE"), nullable=False),
    Column("name", Text, nullable=False),
    Column("spider", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("ttl", Interval, comment="null: never expires"),
    Column("nice", Integer, nullable=False, server_default=text("0")),
    Column("slot_id", Integer, ForeignKey("limits.id"), comment="null: the item's"),
    Column("max_failures", Integer),
    Column("is_item_exclusive", Boolean, nullable=False, server_default=text("false")),
    Column("is_enabled", Boolean, nullable=False, server_default=text("true")),
    Column("is_registered", Boolean, nullable=False, server_default=text("true")),
    Column(
        "is_callback",
        Boolean,
        nullable=False,
        server_default=text("false"),
        comment="a plain callback: its items are requests",
    ),
    Column("definition", Uuid, nullable=False, comment="a digest of all that the code declares"),
    Column("source", Uuid, comment="a digest of the code that runs; null: not at hand"),
    _moment("source_changed_at"),
    Column(
        "limit_ids",
        ARRAY(Integer),
        nullable=False,
        server_default=text("'{}'"),
        comment="what all its work keeps to",
    ),
    UniqueConstraint("crawl_id", "name"),
)

task_tags = Table(
    "task_tags",
    metadata,
    Column("crawl_id", Integer, nullable=False),
    Column("tag_name", Text, nullable=False),
    Column("task_id", Integer, ForeignKey("tasks.id", ondelete="CASCADE"), nullable=False),
    PrimaryKeyConstraint("crawl_id", "tag_name", "task_id"),
)

task_dependencies = Table(
    "task_dependencies",
    metadata,
    Column("task_id", Integer, ForeignKey("tasks.id", ondelete="CASCADE"), nullable=False),
    Column("depends_on_id", Integer, ForeignKey("tasks.id", ondelete="CASCADE"), nullable=False),
    PrimaryKeyConstraint("task_id", "depends_on_id"),
)

tag_limits = Table(
    "tag_limits",
    metadata,
    Column("task_id", Integer, ForeignKey("tasks.id", ondelete="CASCADE"), nullable=False),
    Column("limit_id", Integer, ForeignKey("limits.id"), nullable=False),
    Column("tags", ARRAY(Text), nullable=False, comment="an item with all of them keeps to it"),
    PrimaryKeyConstraint("task_id", "limit_id"),
)

kinds = Table(
    "kinds",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("task_id", Integer, ForeignKey("tasks.id", ondelete="CASCADE"), nullable=False),
    Column(
        "limit_ids",
        ARRAY(Integer),
        nullable=False,
        server_default=text("'{}'"),
        comment="those that its items' tags call for, ordered",
    ),
    UniqueConstraint("task_id", "limit_ids"),
)

sweeps = Table(
    "sweeps",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("crawl_id", Integer, ForeignKey("crawls.id", ondelete="CASCADE"), nullable=False),
    Column("task_id", Integer, ForeignKey("tasks.id", ondelete="CASCADE")),
    Column("tags", ARRAY(Text), nullable=False),
    Column("unhold", Boolean, nullable=False, server_default=text("false")),
    Column("after_item_id", BigInteger, nullable=False, server_default=text("0")),
    Column("swept", BigInteger, nullable=False, server_default=text("0")),
    _moment("opened_at", now=True),
    Index("sweeps_crawl_id_idx", "crawl_id"),
)

results = Table(
    "results",
    metadata,
    Column("item_id", BigInteger, ForeignKey("items.id", ondelete="CASCADE"), nullable=False),
    Column("task_id", Integer, nullable=False),
    Column("task_version", Text, nullable=False),
    Column("metadata", JSON, nullable=False, server_default=text("'{}'")),
    Column("is_successful", Boolean, nullable=False),
    Column("is_held", Boolean, nullable=False, server_default=text("false")),
    _moment("created_at", now=True),
    _moment("completed_at"),
    _moment("invalidated_at"),
    _moment("expires_at"),
    Column(
        "due_at",
        DateTime(timezone=True),
        comment="expires_at until the expiry is staged, then null",
    ),
    Column("ttl_overridden", Boolean, nullable=False, server_default=text("false")),
    PrimaryKeyConstraint("item_id", "task_id"),
    Index("results_due_idx", "task_id", "due_at", postgresql_where=text("due_at IS NOT NULL")),
)

failures = Table(
    "failures",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("item_id", BigInteger, nullable=False),
    Column("task_id", Integer, nullable=False),
    Column("is_refusal", Boolean, nullable=False, server_default=text("false")),
    Column("error", JSON, nullable=False),
    _moment("occurred_at", now=True),
    _moment("handled_at"),
    Column("handled_by", Text),
    ForeignKeyConstraint(
        ["item_id", "task_id"],
        ["results.item_id", "results.task_id"],
        name="failures_result_fkey",
        ondelete="CASCADE",
    ),
    Index("failures_item_id_task_id_idx", "item_id", "task_id"),
    Index("failures_handled_at_idx", "handled_at", postgresql_where=text("handled_at IS NOT NULL")),
    Index(
        "failures_open_idx",
        "task_id",
        "is_refusal",
        "id",
        postgresql_where=text("handled_at IS NULL"),
    ),
)

workers = Table(
    "workers",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("crawl_id", Integer, ForeignKey("crawls.id", ondelete="CASCADE"), nullable=False),
    Column("spider", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("process_id", Integer, nullable=False),
    Column("job", Text, comment="Scrapyd's job id"),
    _moment("started_at", now=True),
    _moment("locked_at"),
    _moment("lease_until", null=False),
    Column("has_started", Boolean, nullable=False, server_default=text("false")),
    _moment("stopped_at"),
    Column("reason", Text, comment="why it stopped"),
    Index("workers_living_idx", "crawl_id", postgresql_where=text("stopped_at IS NULL")),
)

handed = Table(
    "handed",
    metadata,
    Column("worker_id", ForeignKey("workers.id", ondelete="CASCADE"), primary_key=True),
    Column("items", ARRAY(BigInteger), nullable=False),
    Column("tasks", ARRAY(Integer), nullable=False),
)

cookies = Table(
    "cookies",
    metadata,
    Column("crawl_id", Integer, nullable=False),
    Column("jar", Text, nullable=False, comment="the jar's key as JSON; null for the default jar"),
    Column("domain", Text, nullable=False),
    Column("path", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("cookie", JSON(none_as_null=True), comment="null: the cookie was deleted"),
    _moment("changed_at", now=True),
    Column(
        "expires_at",
        DateTime(timezone=True),
        comment="when it expires, or was deleted; null: not by itself",
    ),
    PrimaryKeyConstraint("crawl_id", "jar", "domain", "path", "name"),
    Index("cookies_changed_idx", "crawl_id", "jar", "domain", "changed_at"),
    Index("cookies_expires_at_idx", "expires_at", postgresql_where=text("expires_at IS NOT NULL")),
)

states = Table(
    "states",
    metadata,
    Column("crawl_id", Integer, ForeignKey("crawls.id", ondelete="CASCADE"), nullable=False),
    Column("key", Text, nullable=False, comment="a key of spider.state as JSON"),
    Column("value", JSON(none_as_null=True), comment="null: the key was deleted"),
    _moment("changed_at", now=True),
    PrimaryKeyConstraint("crawl_id", "key"),
)

logins = Table(
    "logins",
    metadata,
    Column("crawl_id", Integer, ForeignKey("crawls.id", ondelete="CASCADE"), primary_key=True),
    Column("generation", Integer, nullable=False, server_default=text("0")),
    Column("worker_id", Integer, comment="who logs in just now"),
    _moment("renewed_at"),
)

answers = Table(
    "answers",
    metadata,
    Column("token", Uuid, primary_key=True),
    _moment("committed_at", now=True),
)

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
    _moment("not_before"),
    Column("request", JSON, comment="where a redirect or a retry took it; null: as in the data"),
    Column("worker_id", Integer),
    Column("token", Uuid),
    _moment("claimed_at"),
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
        "work_retry_idx",
        "crawl_id",
        "not_before",
        postgresql_where=text("not_before IS NOT NULL AND tries > 0"),
    ),
    postgresql_with={
        "fillfactor": "80",
        "autovacuum_vacuum_scale_factor": "0.01",
        "autovacuum_vacuum_threshold": "1000",
        "autovacuum_vacuum_cost_delay": "0",
        "vacuum_truncate": "off",
    },
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
    _moment("started_at"),
    _moment("ended_at", now=True),
    Index("attempts_item_id_task_id_id_idx", "item_id", "task_id", "id"),
)

feeds = Table(
    "feeds",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("crawl_id", Integer, ForeignKey("crawls.id", ondelete="CASCADE"), nullable=False),
    Column("name", Text, nullable=False, comment="the template of its URI, without credentials"),
    Column("run_started_at", DateTime(timezone=True), comment="the run that it takes part in"),
    Column("token", Uuid, comment="its writer's"),
    Column("uri", Text, comment="where it is being written; null: that has not begun"),
    Column("batch", Integer, nullable=False, server_default=text("1")),
    Column("count", BigInteger, nullable=False, server_default=text("0"), comment="of items there"),
    Column("size", BigInteger, comment="bytes of the file that stand, whatever comes after them"),
    Column("mark", BigInteger, comment="a digest of what stands before the end of these bytes"),
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
