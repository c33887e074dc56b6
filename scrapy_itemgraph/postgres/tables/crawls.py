"""Crawls, their tasks, and what a start registers of both."""

from __future__ import annotations

from sqlalchemy import (
    ARRAY,
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
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

from scrapy_itemgraph.postgres.tables.base import metadata, moment, sayable, statuses

crawls = Table(
    "crawls",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("name", Text, nullable=False),
    Column("arguments", JSON, nullable=False, server_default=text("'{}'")),
    moment("created_at", now=True),
    Column(
        "run",
        Integer,
        nullable=False,
        server_default=text("0"),
        comment="the number of its run, from 1; 0 before the first",
    ),
    Column(
        "run_journal_id",
        BigInteger,
        nullable=False,
        server_default=text("0"),
        comment="the last number of its journal before the run",
    ),
    Column(
        "names_freed",
        BigInteger,
        nullable=False,
        server_default=text("0"),
        comment="how many commits freed names; by it workers know that what they know is outdated",
    ),
    Column("spider", Text, comment="that started it last"),
    Column(
        "given",
        JSON,
        comment="the spider's arguments at its last start; null: not known, of before 0022",
    ),
    Column(
        "identity",
        Text,
        comment="a digest of spider and arguments; null: it is known by its name alone",
    ),
    Column("state", Text, comment="active, paused, aborted or finished; null: nobody manages it"),
    Column("state_reason", Text, comment="why it is in that state"),
    Column("project", Text, comment="the Scrapy project whose runners may take it"),
    Column("start_arguments", JSON, comment="the spider's arguments, as it is started with them"),
    Column("start_settings", JSON, comment="settings of its processes, likewise"),
    Column("nice", Integer, nullable=False, server_default=text("0")),
    Column(
        "concurrency",
        SmallInteger,
        nullable=False,
        server_default=text("1"),
        comment="how many processes may run it at once; 0: it is paused",
    ),
    Column("tag", Text, comment="runners with this tag may take it; null: all but tagged-only"),
    Column("note", Text, comment="what people should know of it"),
    Column("created_by", Text),
    moment("queued_at"),
    moment("next_at"),
    Column("time_limit", Interval, comment="how long a process of it may run; null: no limit"),
    Column("resource_id", Integer, ForeignKey("limits.id"), comment="a limit of kind resource"),
    Column(
        "keeps_fresh",
        Boolean,
        nullable=False,
        server_default=text("false"),
        comment="it is started when a result falls due",
    ),
    Column(
        "crashes",
        SmallInteger,
        nullable=False,
        server_default=text("0"),
        comment="abnormal ends of its processes in a row",
    ),
    Column("crashed_at_pages", BigInteger, comment="its pages done when the first of them ended"),
    Column("dripfeed", Integer, comment="how many pages of its stash are kept in work"),
    Column("ruleset_id", Integer, comment="the rules in force; null: it never had any"),
    Column(
        "tracks_depth",
        Boolean,
        nullable=False,
        server_default=text("false"),
        comment="its pages have a least depth",
    ),
    Column("depth_limit", Integer, comment="pages that are deeper are not fetched; null: no limit"),
    Column(
        "is_depth_limit_set",
        Boolean,
        nullable=False,
        server_default=text("false"),
        comment="by a person; else it is DEPTH_LIMIT, as of its last start",
    ),
    Column("frontier", SmallInteger, comment="2: it has one; 1: it is about to; null: it has none"),
    UniqueConstraint("name"),
    UniqueConstraint("identity"),
    sayable("created_at", "queued_at", "next_at"),
    CheckConstraint("run BETWEEN 0 AND 1073741824", name="run"),
    CheckConstraint("names_freed BETWEEN 0 AND 4611686018427387904", name="names_freed"),
    CheckConstraint("state IN ('active', 'paused', 'aborted', 'finished')", name="state"),
    CheckConstraint("concurrency >= 0", name="concurrency"),
    CheckConstraint("dripfeed > 0", name="dripfeed"),
    CheckConstraint("depth_limit >= 0", name="depth_limit"),
    CheckConstraint("frontier IN (1, 2)", name="frontier"),
    Index("crawls_state_id_idx", "state", "id"),
    Index(
        "crawls_queue_idx",
        "project",
        "nice",
        "queued_at",
        "id",
        postgresql_where=text("state = 'active'"),
    ),
)

runs = Table(
    "runs",
    metadata,
    Column("crawl_id", Integer, ForeignKey("crawls.id", ondelete="CASCADE"), nullable=False),
    Column("number", Integer, nullable=False),
    moment("started_at", null=False),
    moment("ended_at"),
    Column(
        "is_finished",
        Boolean,
        nullable=False,
        server_default=text("false"),
        comment="all its work was done; else a later start goes on with it",
    ),
    Column(
        "is_closed",
        Boolean,
        nullable=False,
        server_default=text("false"),
        comment="its spider closed it, with work left",
    ),
    Column(
        "continued_at",
        DateTime(timezone=True),
        comment="when work opened it again after its end, last",
    ),
    Column("worker_id", Integer, comment="that began it"),
    Column("spider", Text, comment="that worker's"),
    Column("job", Text, comment="that worker's"),
    Column("reason", Text, comment="finished, or why its last worker ended"),
    Column("error", Text, comment="of the last of its workers that ended by an error"),
    *(
        Column(name, BigInteger, nullable=False, server_default=text("0"))
        for name in ("pages", "items", "failures", "retried", "refused", "gone", "bytes")
    ),
    statuses(),
    Column(
        "long_links",
        BigInteger,
        nullable=False,
        server_default=text("0"),
        comment="links left out because they are longer than URLLENGTH_LIMIT",
    ),
    Column("url_limit", Integer, comment="URLLENGTH_LIMIT, as of the last of these"),
    PrimaryKeyConstraint("crawl_id", "number"),
    sayable("started_at", "ended_at", "continued_at"),
)

# A row is never changed, and an attempt names the one that it kept to.
rulesets = Table(
    "rulesets",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("crawl_id", Integer, ForeignKey("crawls.id", ondelete="CASCADE"), nullable=False),
    Column("number", Integer, nullable=False, comment="of those of its crawl, from 1"),
    Column("rules", JSON, nullable=False),
    moment("created_at", now=True),
    Column("created_by", Text),
    Column("note", Text, comment="why, for those who look"),
    UniqueConstraint("crawl_id", "number"),
)

# One row: what is added to a secret before its digest is made.
salts = Table(
    "salts",
    metadata,
    Column("id", SmallInteger, primary_key=True, autoincrement=False),
    Column("salt", Uuid, nullable=False),
    CheckConstraint("id = 1", name="id"),
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
    moment("source_changed_at"),
    Column(
        "left_by",
        ARRAY(Integer),
        nullable=False,
        server_default=text("'{}'"),
        comment="workers of older code, which leave its work alone",
    ),
    Column(
        "limit_ids",
        ARRAY(Integer),
        nullable=False,
        server_default=text("'{}'"),
        comment="what all its work keeps to",
    ),
    UniqueConstraint("crawl_id", "name"),
    CheckConstraint("ttl > '0' AND ttl <= '36525 days'", name="ttl"),
    CheckConstraint("max_failures >= 1", name="max_failures"),
)


# At which times of the clock the results of a task expire. Not columns of tasks: they make its rows
# as wide as the planner takes them to be, and most tasks have no schedule.
task_schedules = Table(
    "task_schedules",
    metadata,
    Column(
        "task_id",
        Integer,
        ForeignKey("tasks.id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("schedule", JSON, nullable=False),
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
    moment("opened_at", now=True),
    Column("ruleset_id", Integer, comment="the rules that waiting work is looked at with"),
    Column(
        "held",
        BigInteger,
        nullable=False,
        server_default=text("0"),
        comment="how many pages these rules have set aside",
    ),
    Column(
        "freed",
        BigInteger,
        nullable=False,
        server_default=text("0"),
        comment="how many that were set aside they have taken back",
    ),
    Column("left_run", Integer, comment="the run whose outstanding pages are left"),
    CheckConstraint("left_run BETWEEN 1 AND 1073741824", name="left_run"),
    Index("sweeps_crawl_id_idx", "crawl_id"),
)
