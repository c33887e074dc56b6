"""Crawls that people steer: a queue, runners, jobs, schedules, what happened, and notices of it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None


def moments(table: str, *names: str) -> sa.CheckConstraint:
    """Declare that moments are some that Python can say."""
    within = "{0} BETWEEN '0001-01-02 00:00:00+00' AND '9999-12-30 00:00:00+00'"
    return sa.CheckConstraint(
        " AND ".join(map(within.format, names)), name=op.f(f"{table}_moments_check")
    )


def make_runners() -> None:
    op.create_table(
        "runners",
        sa.Column("id", sa.Integer(), sa.Identity(always=False), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column(
            "process_id",
            sa.Integer(),
            comment="its present or last process; whether that lives stands in processes",
        ),
        sa.Column(
            "project", sa.Text(), nullable=False, comment="the Scrapy project whose crawls it takes"
        ),
        sa.Column("tags", sa.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column(
            "only_tagged",
            sa.Boolean(),
            server_default=sa.text("false"),
            nullable=False,
            comment="it takes crawls with one of its tags alone",
        ),
        sa.Column(
            "places",
            sa.SmallInteger(),
            nullable=False,
            comment="how many processes it runs at once",
        ),
        sa.Column(
            "preempts",
            sa.Boolean(),
            server_default=sa.text("true"),
            nullable=False,
            comment="it ends a process for a better crawl",
        ),
        sa.Column("logs", sa.Text(), comment="the folder of its jobs' logs, on its host"),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("drains_since", sa.DateTime(timezone=True)),
        sa.Column(
            "low",
            sa.Text(),
            comment="why it starts nothing: memory or disk are low; null: it starts",
        ),
        sa.Column("disk_free", sa.BigInteger(), comment="bytes, where its logs are"),
        sa.Column("disk_total", sa.BigInteger()),
        sa.Column("memory_free", sa.BigInteger(), comment="bytes"),
        sa.Column("load", sa.Double(), comment="of its host, over a minute"),
        moments("runners", "created_at", "drains_since"),
        sa.CheckConstraint("places >= 1", name=op.f("runners_places_check")),
        sa.ForeignKeyConstraint(
            ["process_id"], ["processes.id"], name="runners_process_id_fkey", ondelete="SET NULL"
        ),
        sa.PrimaryKeyConstraint("id", name="runners_pkey"),
        sa.UniqueConstraint("name", name="runners_name_key"),
    )


def make_schedules() -> None:
    op.create_table(
        "schedules",
        sa.Column("id", sa.Integer(), sa.Identity(always=False), nullable=False),
        sa.Column("crawl_id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False, comment="every, at or cron"),
        sa.Column(
            "spec", sa.Text(), nullable=False, comment="a period, times of the day, or a cron line"
        ),
        sa.Column("time_zone", sa.Text(), server_default=sa.text("'UTC'"), nullable=False),
        sa.Column(
            "catch_up",
            sa.Text(),
            server_default=sa.text("'one'"),
            nullable=False,
            comment="what is done about due times that were missed: one of them, none, or all",
        ),
        sa.Column(
            "overlap",
            sa.Text(),
            server_default=sa.text("'skip'"),
            nullable=False,
            comment="what is done while the crawl is active still: skip, or queue",
        ),
        sa.Column("grace", sa.Interval(), server_default=sa.text("'10 minutes'"), nullable=False),
        sa.Column("jitter", sa.Interval(), comment="each start is later by up to so much"),
        sa.Column(
            "time_limit",
            sa.Interval(),
            comment="of its processes; null: the crawl's",
        ),
        sa.Column("is_enabled", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("starts_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("next_at", sa.DateTime(timezone=True)),
        sa.Column("last_at", sa.DateTime(timezone=True)),
        sa.Column("missed", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("created_by", sa.Text()),
        sa.CheckConstraint(
            "catch_up IN ('one', 'none', 'all')", name=op.f("schedules_catch_up_check")
        ),
        sa.CheckConstraint("kind IN ('every', 'at', 'cron')", name=op.f("schedules_kind_check")),
        sa.CheckConstraint("overlap IN ('skip', 'queue')", name=op.f("schedules_overlap_check")),
        moments("schedules", "starts_at", "next_at", "last_at", "created_at"),
        sa.ForeignKeyConstraint(
            ["crawl_id"], ["crawls.id"], name="schedules_crawl_id_fkey", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="schedules_pkey"),
    )
    op.create_index("schedules_crawl_id_idx", "schedules", ["crawl_id"], unique=False)
    op.create_index(
        "schedules_next_at_idx",
        "schedules",
        ["next_at"],
        unique=False,
        postgresql_where=sa.text("is_enabled"),
    )


def make_jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("crawl_id", sa.Integer(), nullable=False),
        sa.Column(
            "origin",
            sa.Text(),
            nullable=False,
            comment="who started it: a runner, scrapyd, or a hand",
        ),
        sa.Column("schedule_id", sa.Integer()),
        sa.Column("due_at", sa.DateTime(timezone=True)),
        sa.Column("runner_id", sa.Integer()),
        sa.Column("place", sa.SmallInteger(), comment="of its runner, from 1"),
        sa.Column("worker_id", sa.Integer(), comment="what its process is registered as"),
        sa.Column("state", sa.Text(), server_default=sa.text("'pending'"), nullable=False),
        sa.Column(
            "attempts",
            sa.SmallInteger(),
            server_default=sa.text("1"),
            nullable=False,
            comment="1, and how many before it in a row ended abnormally",
        ),
        sa.Column("not_before", sa.DateTime(timezone=True)),
        sa.Column("host", sa.Text()),
        sa.Column("process_id", sa.Integer()),
        sa.Column(
            "exit_code",
            sa.SmallInteger(),
            comment="negative: the signal that ended it",
        ),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("started_at", sa.DateTime(timezone=True)),
        sa.Column("ended_at", sa.DateTime(timezone=True)),
        sa.Column(
            "updated_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column(
            "stop_wanted",
            sa.Text(),
            comment="why it is told to stop; null: it is not",
        ),
        sa.Column("message", sa.Text(), comment="what its process said last"),
        sa.Column("reason", sa.Text(), comment="why it ended"),
        sa.Column("log", sa.Text(), comment="the file of its output, on its runner's host"),
        sa.Column("output", sa.Text(), comment="the end of its output"),
        sa.Column(
            "code",
            sa.Text(),
            comment="the version of its code: of its egg, or a digest",
        ),
        sa.Column("scrapyd_job", sa.Text(), comment="its id there"),
        sa.Column(
            "memory",
            sa.BigInteger(),
            comment="the most bytes that its processes had",
        ),
        moments(
            "jobs", "due_at", "not_before", "created_at", "started_at", "ended_at", "updated_at"
        ),
        sa.CheckConstraint(
            "origin IN ('runner', 'scrapyd', 'hand')", name=op.f("jobs_origin_check")
        ),
        sa.CheckConstraint(
            "state IN ('pending', 'running', 'completed', 'temporary-error', "
            "'permanent-error', 'cancelled')",
            name=op.f("jobs_state_check"),
        ),
        sa.CheckConstraint(
            "stop_wanted IN ('pause', 'drain', 'abort', 'cancel', 'preempt', 'memory', 'time', "
            "'deploy')",
            name=op.f("jobs_stop_wanted_check"),
        ),
        sa.ForeignKeyConstraint(
            ["crawl_id"], ["crawls.id"], name="jobs_crawl_id_fkey", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["runner_id"], ["runners.id"], name="jobs_runner_id_fkey", ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(
            ["schedule_id"], ["schedules.id"], name="jobs_schedule_id_fkey", ondelete="SET NULL"
        ),
        sa.PrimaryKeyConstraint("id", name="jobs_pkey"),
        sa.UniqueConstraint("schedule_id", "due_at", name="jobs_schedule_id_due_at_key"),
    )
    op.create_index("jobs_crawl_id_id_idx", "jobs", ["crawl_id", "id"], unique=False)
    op.create_index(
        "jobs_ended_at_idx",
        "jobs",
        ["ended_at"],
        unique=False,
        postgresql_where=sa.text("ended_at IS NOT NULL"),
    )
    op.create_index(
        "jobs_open_idx",
        "jobs",
        ["crawl_id"],
        unique=False,
        postgresql_where=sa.text("ended_at IS NULL"),
    )
    op.create_index(
        "jobs_worker_id_idx",
        "jobs",
        ["worker_id"],
        unique=False,
        postgresql_where=sa.text("ended_at IS NULL AND worker_id IS NOT NULL"),
    )


def make_places() -> None:
    op.create_table(
        "places",
        sa.Column("runner_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.SmallInteger(), nullable=False, comment="from 1"),
        sa.Column(
            "crawl_id",
            sa.Integer(),
            comment="the crawl that it runs; null: it is free",
        ),
        sa.Column("job_id", sa.BigInteger(), comment="its process's job"),
        sa.Column("since", sa.DateTime(timezone=True)),
        sa.Column(
            "kept_for",
            sa.Integer(),
            comment="the better crawl for which its process ends",
        ),
        sa.Column(
            "locked_to",
            sa.Integer(),
            comment="the one crawl that it takes; null: any",
        ),
        sa.Column("lock", sa.Text(), comment="for how long it is locked"),
        sa.CheckConstraint(
            "lock IN ('indefinitely', 'until finished')", name=op.f("places_lock_check")
        ),
        moments("places", "since"),
        sa.ForeignKeyConstraint(
            ["crawl_id"], ["crawls.id"], name="places_crawl_id_fkey", ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(
            ["kept_for"], ["crawls.id"], name="places_kept_for_fkey", ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(
            ["locked_to"], ["crawls.id"], name="places_locked_to_fkey", ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(
            ["runner_id"], ["runners.id"], name="places_runner_id_fkey", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("runner_id", "number", name="places_pkey"),
    )


def make_crawl_events() -> None:
    op.create_table(
        "crawl_events",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("crawl_id", sa.Integer()),
        sa.Column(
            "at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.Column(
            "by", sa.Text(), nullable=False, comment="the person, runner or worker that did it"
        ),
        sa.Column("what", sa.Text(), nullable=False),
        sa.Column("detail", sa.JSON(), server_default=sa.text("'{}'"), nullable=False),
        moments("crawl_events", "at"),
        sa.ForeignKeyConstraint(
            ["crawl_id"], ["crawls.id"], name="crawl_events_crawl_id_fkey", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="crawl_events_pkey"),
    )
    op.create_index(
        "crawl_events_crawl_id_id_idx", "crawl_events", ["crawl_id", "id"], unique=False
    )


def make_notices() -> None:
    op.create_table(
        "notices",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("crawl_id", sa.Integer()),
        sa.Column("what", sa.Text(), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("next_at", sa.DateTime(timezone=True)),
        sa.Column("tries", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("sent_at", sa.DateTime(timezone=True)),
        sa.Column("given_up_at", sa.DateTime(timezone=True)),
        sa.Column("error", sa.Text(), comment="why the last try to send it failed"),
        moments("notices", "created_at", "next_at", "sent_at", "given_up_at"),
        sa.ForeignKeyConstraint(
            ["crawl_id"], ["crawls.id"], name="notices_crawl_id_fkey", ondelete="SET NULL"
        ),
        sa.PrimaryKeyConstraint("id", name="notices_pkey"),
    )
    op.create_index(
        "notices_unsent_idx",
        "notices",
        ["id"],
        unique=False,
        postgresql_where=sa.text("sent_at IS NULL AND given_up_at IS NULL"),
    )


def change_crawls() -> None:
    op.add_column(
        "crawls",
        sa.Column(
            "state",
            sa.Text(),
            comment="active, paused, aborted or finished; null: nobody manages it",
        ),
    )
    op.add_column(
        "crawls",
        sa.Column("state_reason", sa.Text(), comment="why it is in that state"),
    )
    op.add_column(
        "crawls",
        sa.Column(
            "project",
            sa.Text(),
            comment="the Scrapy project whose runners may take it",
        ),
    )
    op.add_column(
        "crawls",
        sa.Column(
            "start_arguments",
            sa.JSON(),
            comment="the spider's arguments, as it is started with them",
        ),
    )
    op.add_column(
        "crawls",
        sa.Column(
            "start_settings",
            sa.JSON(),
            comment="settings of its processes, likewise",
        ),
    )
    op.add_column(
        "crawls", sa.Column("nice", sa.Integer(), server_default=sa.text("0"), nullable=False)
    )
    op.add_column(
        "crawls",
        sa.Column(
            "concurrency",
            sa.SmallInteger(),
            server_default=sa.text("1"),
            nullable=False,
            comment="how many processes may run it at once; 0: it is paused",
        ),
    )
    op.add_column(
        "crawls",
        sa.Column(
            "tag",
            sa.Text(),
            comment="runners with this tag may take it; null: all but tagged-only",
        ),
    )
    op.add_column(
        "crawls",
        sa.Column("note", sa.Text(), comment="what people should know of it"),
    )
    op.add_column("crawls", sa.Column("created_by", sa.Text()))
    op.add_column("crawls", sa.Column("queued_at", sa.DateTime(timezone=True)))
    op.add_column("crawls", sa.Column("next_at", sa.DateTime(timezone=True)))
    op.add_column(
        "crawls",
        sa.Column(
            "time_limit",
            sa.Interval(),
            comment="how long a process of it may run; null: no limit",
        ),
    )
    op.add_column(
        "crawls",
        sa.Column("resource_id", sa.Integer(), comment="a limit of kind resource"),
    )
    op.add_column(
        "crawls",
        sa.Column(
            "keeps_fresh",
            sa.Boolean(),
            server_default=sa.text("false"),
            nullable=False,
            comment="it is started when a result falls due",
        ),
    )
    op.add_column(
        "crawls",
        sa.Column(
            "crashes",
            sa.SmallInteger(),
            server_default=sa.text("0"),
            nullable=False,
            comment="abnormal ends of its processes in a row",
        ),
    )
    op.add_column(
        "crawls",
        sa.Column(
            "crashed_at_pages",
            sa.BigInteger(),
            comment="its pages done when the first of them ended",
        ),
    )
    op.create_index(
        "crawls_queue_idx",
        "crawls",
        ["project", "nice", "queued_at", "id"],
        unique=False,
        postgresql_where=sa.text("state = 'active'"),
    )
    op.create_foreign_key("crawls_resource_id_fkey", "crawls", "limits", ["resource_id"], ["id"])
    op.drop_constraint("crawls_moments_check", "crawls")
    op.create_check_constraint(
        op.f("crawls_state_check"), "crawls", "state IN ('active', 'paused', 'aborted', 'finished')"
    )
    op.create_check_constraint(op.f("crawls_concurrency_check"), "crawls", "concurrency >= 0")
    op.create_check_constraint(
        op.f("crawls_moments_check"),
        "crawls",
        moments("crawls", "created_at", "queued_at", "next_at").sqltext,
    )


def upgrade() -> None:
    change_crawls()
    make_runners()
    make_schedules()
    make_jobs()
    make_places()
    make_crawl_events()
    make_notices()
