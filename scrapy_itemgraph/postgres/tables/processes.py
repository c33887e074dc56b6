"""Processes that work with the database, how others know that they live, and which are workers."""

from __future__ import annotations

from sqlalchemy import (
    ARRAY,
    JSON,
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Identity,
    Index,
    Integer,
    Table,
    Text,
    text,
)

from scrapy_itemgraph.postgres.tables.base import metadata, moment, sayable

# All that is known of whether a process lives stands here alone, whatever kind of process it is.
processes = Table(
    "processes",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("kind", Text, nullable=False, comment="what it is: worker, …"),
    Column(
        "crawl_id",
        Integer,
        ForeignKey("crawls.id", ondelete="CASCADE"),
        comment="the crawl that a worker works on; null: it is no worker",
    ),
    Column("host", Text, nullable=False),
    Column("process_id", Integer, nullable=False),
    Column("code", Text, comment="the version of its code: of its egg, or a digest"),
    moment("started_at", now=True),
    moment("locked_at"),
    moment("lease_until", null=False),
    moment("seen_at", now=True),
    Column("memory", BigInteger, comment="bytes that its process has, when it was seen last"),
    moment("stopped_at"),
    Column("reason", Text, comment="why it stopped"),
    sayable("started_at", "locked_at", "lease_until", "stopped_at", "seen_at"),
    Index("processes_living_idx", "crawl_id", postgresql_where=text("stopped_at IS NULL")),
)


workers = Table(
    "workers",
    metadata,
    Column("id", Integer, ForeignKey("processes.id", ondelete="CASCADE"), primary_key=True),
    Column("spider", Text, nullable=False),
    Column("job", Text, comment="Scrapyd's job id"),
    Column("has_started", Boolean, nullable=False, server_default=text("false")),
    Column(
        "sources",
        JSON,
        nullable=False,
        server_default=text("'{}'"),
        comment="of its tasks, by name: digests of the code that it runs",
    ),
    Column("code_file", Text, comment="what its process's code is a digest of"),
    Column("error", Text, comment="the last that its process logged"),
    moment("error_at"),
    Column(
        "uncounted",
        ARRAY(Text),
        nullable=False,
        server_default=text("'{}'"),
        comment="names of the arguments of its start that tell no crawls apart",
    ),
)
