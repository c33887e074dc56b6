"""Runners, their places and jobs, schedules, what happened to crawls, and notices of it."""

from __future__ import annotations

from sqlalchemy import (
    ARRAY,
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    Interval,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from scrapy_itemgraph.postgres.tables.base import metadata, moment, sayable

runners = Table(
    "runners",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("name", Text, nullable=False),
    Column(
        "process_id",
        Integer,
        ForeignKey("processes.id", ondelete="SET NULL"),
        comment="its present or last process; whether that lives stands in processes",
    ),
    Column("project", Text, nullable=False, comment="the Scrapy project whose crawls it takes"),
    Column("tags", ARRAY(Text), nullable=False, server_default=text("'{}'")),
    Column(
        "only_tagged",
        Boolean,
        nullable=False,
        server_default=text("false"),
        comment="it takes crawls with one of its tags alone",
    ),
    Column("places", SmallInteger, nullable=False, comment="how many processes it runs at once"),
    Column(
        "preempts",
        Boolean,
        nullable=False,
        server_default=text("true"),
        comment="it ends a process for a better crawl",
    ),
    Column("logs", Text, comment="the folder of its jobs' logs, on its host"),
    moment("created_at", now=True),
    moment("drains_since"),
    Column("low", Text, comment="why it starts nothing: memory or disk are low; null: it starts"),
    Column("disk_free", BigInteger, comment="bytes, where its logs are"),
    Column("disk_total", BigInteger),
    Column("memory_free", BigInteger, comment="bytes"),
    Column("load", Double, comment="of its host, over a minute"),
    UniqueConstraint("name"),
    sayable("created_at", "drains_since"),
    CheckConstraint("places >= 1", name="places"),
)


schedules = Table(
    "schedules",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("crawl_id", Integer, ForeignKey("crawls.id", ondelete="CASCADE"), nullable=False),
    Column("kind", Text, nullable=False, comment="every, at or cron"),
    Column("spec", Text, nullable=False, comment="a period, times of the day, or a cron line"),
    Column("time_zone", Text, nullable=False, server_default=text("'UTC'")),
    Column(
        "catch_up",
        Text,
        nullable=False,
        server_default=text("'one'"),
        comment="what is done about due times that were missed: one of them, none, or all",
    ),
    Column(
        "overlap",
        Text,
        nullable=False,
        server_default=text("'skip'"),
        comment="what is done while the crawl is active still: skip, or queue",
    ),
    Column("grace", Interval, nullable=False, server_default=text("'10 minutes'")),
    Column("jitter", Interval, comment="each start is later by up to so much"),
    Column("time_limit", Interval, comment="of its processes; null: the crawl's"),
    Column("is_enabled", Boolean, nullable=False, server_default=text("true")),
    moment("starts_at", null=False),
    moment("next_at"),
    moment("last_at"),
    Column("missed", Integer, nullable=False, server_default=text("0")),
    moment("created_at", now=True),
    Column("created_by", Text),
    sayable("starts_at", "next_at", "last_at", "created_at"),
    CheckConstraint("kind IN ('every', 'at', 'cron')", name="kind"),
    CheckConstraint("catch_up IN ('one', 'none', 'all')", name="catch_up"),
    CheckConstraint("overlap IN ('skip', 'queue')", name="overlap"),
    Index("schedules_crawl_id_idx", "crawl_id"),
    Index("schedules_next_at_idx", "next_at", postgresql_where=text("is_enabled")),
)


jobs = Table(
    "jobs",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("crawl_id", Integer, ForeignKey("crawls.id", ondelete="CASCADE"), nullable=False),
    Column("origin", Text, nullable=False, comment="who started it: a runner, scrapyd, or a hand"),
    Column("schedule_id", Integer, ForeignKey("schedules.id", ondelete="SET NULL")),
    moment("due_at"),
    Column("runner_id", Integer, ForeignKey("runners.id", ondelete="SET NULL")),
    Column("place", SmallInteger, comment="of its runner, from 1"),
    Column("worker_id", Integer, comment="what its process is registered as"),
    Column("state", Text, nullable=False, server_default=text("'pending'")),
    Column(
        "attempts",
        SmallInteger,
        nullable=False,
        server_default=text("1"),
        comment="1, and how many before it in a row ended abnormally",
    ),
    moment("not_before"),
    Column("host", Text),
    Column("process_id", Integer),
    Column("exit_code", SmallInteger, comment="negative: the signal that ended it"),
    moment("created_at", now=True),
    moment("started_at"),
    moment("ended_at"),
    moment("updated_at", now=True),
    Column("stop_wanted", Text, comment="why it is told to stop; null: it is not"),
    Column("message", Text, comment="what its process said last"),
    Column("reason", Text, comment="why it ended"),
    Column("log", Text, comment="the file of its output, on its runner's host"),
    Column("output", Text, comment="the end of its output"),
    Column(
        "output_lines",
        BigInteger,
        comment="lines written in all when that was kept",
    ),
    Column("code", Text, comment="the version of its code: of its egg, or a digest"),
    Column("scrapyd_job", Text, comment="its id there"),
    Column("memory", BigInteger, comment="the most bytes that its processes had"),
    UniqueConstraint("schedule_id", "due_at"),
    sayable("due_at", "not_before", "created_at", "started_at", "ended_at", "updated_at"),
    CheckConstraint(
        "state IN ('pending', 'running', 'completed', 'temporary-error', 'permanent-error', "
        "'cancelled')",
        name="state",
    ),
    CheckConstraint("origin IN ('runner', 'scrapyd', 'hand')", name="origin"),
    CheckConstraint(
        "stop_wanted IN ('pause', 'drain', 'abort', 'cancel', 'preempt', 'memory', 'time', "
        "'deploy')",
        name="stop_wanted",
    ),
    Index("jobs_crawl_id_id_idx", "crawl_id", "id"),
    Index("jobs_open_idx", "crawl_id", postgresql_where=text("ended_at IS NULL")),
    Index(
        "jobs_worker_id_id_idx",
        "worker_id",
        "id",
        postgresql_where=text("worker_id IS NOT NULL"),
    ),
    Index("jobs_ended_at_idx", "ended_at", postgresql_where=text("ended_at IS NOT NULL")),
)


# Which crawl each place of a runner has now, and which it is kept for.
places = Table(
    "places",
    metadata,
    Column("runner_id", Integer, ForeignKey("runners.id", ondelete="CASCADE"), nullable=False),
    Column("number", SmallInteger, nullable=False, comment="from 1"),
    Column(
        "crawl_id",
        Integer,
        ForeignKey("crawls.id", ondelete="SET NULL"),
        comment="the crawl that it runs; null: it is free",
    ),
    Column("job_id", BigInteger, comment="its process's job"),
    moment("since"),
    Column(
        "kept_for",
        Integer,
        ForeignKey("crawls.id", ondelete="SET NULL"),
        comment="the better crawl for which its process ends",
    ),
    Column(
        "locked_to",
        Integer,
        ForeignKey("crawls.id", ondelete="SET NULL"),
        comment="the one crawl that it takes; null: any",
    ),
    Column("lock", Text, comment="for how long it is locked"),
    PrimaryKeyConstraint("runner_id", "number"),
    sayable("since"),
    CheckConstraint("lock IN ('indefinitely', 'until finished')", name="lock"),
)


# Who did what to a crawl, or to the queue (no crawl), in the order in which it became true.
crawl_events = Table(
    "crawl_events",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("crawl_id", Integer, ForeignKey("crawls.id", ondelete="CASCADE")),
    moment("at", now=True),
    Column("by", Text, nullable=False, comment="the person, runner or worker that did it"),
    Column("what", Text, nullable=False),
    Column("detail", JSON, nullable=False, server_default=text("'{}'")),
    sayable("at"),
    Index("crawl_events_crawl_id_id_idx", "crawl_id", "id"),
)


# Written by the transaction that makes something true, and sent after it: at least once.
notices = Table(
    "notices",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("crawl_id", Integer, ForeignKey("crawls.id", ondelete="SET NULL")),
    Column(
        "key",
        Uuid,
        nullable=False,
        server_default=text("gen_random_uuid()"),
        comment="the id that receivers get, the same at each try",
    ),
    Column("what", Text, nullable=False),
    Column("project", Text, comment="the Scrapy project whose people are told"),
    Column("body", JSON, nullable=False),
    moment("created_at", now=True),
    moment("next_at"),
    Column("tries", SmallInteger, nullable=False, server_default=text("0")),
    moment("sent_at"),
    moment("given_up_at"),
    Column("error", Text, comment="why the last try to send it failed"),
    Column(
        "answers",
        JSONB,
        nullable=False,
        server_default=text("'{}'"),
        comment="by channel: what became of it, and what was said",
    ),
    Column(
        "holds",
        Boolean,
        comment="it says of a crawl what lasts, and that lasts still: it is not said again",
    ),
    sayable("created_at", "next_at", "sent_at", "given_up_at"),
    Index("notices_created_at_idx", "created_at"),
    Index("notices_holds_key", "crawl_id", "what", unique=True, postgresql_where=text("holds")),
    Index("notices_due_idx", "project", "next_at", postgresql_where=text("next_at IS NOT NULL")),
    Index("notices_crawl_idx", text("(body ->> 'crawl')"), "id"),
)
