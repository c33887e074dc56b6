"""The item graph."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "answers",
        sa.Column("token", sa.Uuid(), nullable=False),
        sa.Column(
            "committed_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("token", name="answers_pkey"),
    )
    op.create_table(
        "attempts",
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("item_id", sa.BigInteger(), nullable=False),
        sa.Column("task_id", sa.Integer(), nullable=False),
        sa.Column("worker_id", sa.Integer()),
        sa.Column("token", sa.Uuid(), nullable=False),
        sa.Column("task_version", sa.Text(), nullable=False),
        sa.Column("number", sa.SmallInteger(), nullable=False, comment="from 1"),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("error", sa.JSON(none_as_null=True)),
        sa.Column("started_at", sa.DateTime(timezone=True)),
        sa.Column(
            "ended_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.PrimaryKeyConstraint("id", name="attempts_pkey"),
    )
    op.create_index("attempts_item_id_task_id_id_idx", "attempts", ["item_id", "task_id", "id"])
    op.create_table(
        "cookies",
        sa.Column("crawl_id", sa.Integer(), nullable=False),
        sa.Column(
            "jar",
            sa.Text(),
            nullable=False,
            comment="the jar's key as JSON; null for the default jar",
        ),
        sa.Column("domain", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("cookie", sa.JSON(none_as_null=True), comment="null: the cookie was deleted"),
        sa.Column(
            "changed_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("crawl_id", "jar", "domain", "path", "name", name="cookies_pkey"),
    )
    op.create_table(
        "crawls",
        sa.Column("id", sa.Integer(), sa.Identity(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("arguments", sa.JSON(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("run_started_at", sa.DateTime(timezone=True)),
        sa.Column("run_finished_at", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("id", name="crawls_pkey"),
        sa.UniqueConstraint("name", name="crawls_name_key"),
    )
    op.create_table(
        "holdings",
        sa.Column("limit_id", sa.Integer(), nullable=False),
        sa.Column("worker_id", sa.Integer(), nullable=False),
        sa.Column(
            "units", sa.Integer(), nullable=False, comment="of the limit's concurrency; 0: it waits"
        ),
        sa.Column(
            "is_exclusive", sa.Boolean(), nullable=False, comment="the limit has a gap to keep"
        ),
        sa.Column(
            "since", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.Column(
            "asked_at", sa.DateTime(timezone=True), comment="when it asked last for what it lacks"
        ),
        sa.Column(
            "until", sa.DateTime(timezone=True), comment="the holder is gone; not free before"
        ),
        sa.PrimaryKeyConstraint("limit_id", "worker_id", name="holdings_pkey"),
    )
    op.execute("ALTER TABLE holdings SET (fillfactor = 50)")
    op.create_index("holdings_worker_id_limit_id_idx", "holdings", ["worker_id", "limit_id"])
    op.create_table(
        "items",
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("crawl_id", sa.Integer(), nullable=False),
        sa.Column("slot_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False, comment="the canonical id"),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.Column("created_by", sa.Text(), comment="an item's id, through an alias; may be broken"),
        sa.Column("nice", sa.Integer(), comment="null: the task's"),
        sa.Column("not_before", sa.DateTime(timezone=True)),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column(
            "updated_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("id", name="items_pkey"),
    )
    op.create_index("items_crawl_id_id_idx", "items", ["crawl_id", "id"])
    op.create_table(
        "journal",
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("crawl_id", sa.Integer(), nullable=False),
        sa.Column("item_id", sa.BigInteger(), comment="the item under work; it may be gone by now"),
        sa.Column("task_id", sa.Integer()),
        sa.Column("item_class", sa.Text(), nullable=False, comment="an import path, or dict"),
        sa.Column("fields", sa.JSON(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("id", name="journal_pkey"),
    )
    op.create_index("journal_crawl_id_id_idx", "journal", ["crawl_id", "id"])
    op.create_table(
        "limits",
        sa.Column("id", sa.Integer(), sa.Identity(), nullable=False),
        sa.Column("kind", sa.Text(), server_default=sa.text("'slot'"), nullable=False),
        sa.Column(
            "name",
            sa.Text(),
            nullable=False,
            comment="of a slot Scrapy's download slot; '' for none",
        ),
        sa.Column("gap", sa.Double(), comment="seconds between starts, as its last holder kept it"),
        sa.Column("concurrency", sa.Integer(), comment="likewise; null: no cap"),
        sa.Column("set_gap", sa.Double(), comment="what a person set; null: as the settings say"),
        sa.Column("set_concurrency", sa.Integer()),
        sa.Column("crawl_delay", sa.Double(), comment="seconds, from robots.txt"),
        sa.Column("throttle", sa.Double(), comment="seconds, as AutoThrottle left it"),
        sa.Column("latency", sa.Double(), comment="seconds that slow downloads took lately"),
        sa.Column("last_at", sa.DateTime(timezone=True)),
        sa.Column("blocked_until", sa.DateTime(timezone=True)),
        sa.Column("blocked_by", sa.Text(), comment="'person', or what the site answered"),
        sa.PrimaryKeyConstraint("id", name="limits_pkey"),
        sa.UniqueConstraint("kind", "name", name="limits_kind_name_key"),
    )
    op.execute("ALTER TABLE limits SET (fillfactor = 50)")
    op.create_table(
        "work",
        sa.Column("item_id", sa.BigInteger(), nullable=False),
        sa.Column("task_id", sa.Integer(), nullable=False),
        sa.Column("crawl_id", sa.Integer(), nullable=False),
        sa.Column("queue_id", sa.Integer(), nullable=False),
        sa.Column("kind_id", sa.Integer(), nullable=False),
        sa.Column("is_stale", sa.Boolean(), nullable=False),
        sa.Column("nice", sa.Integer(), nullable=False),
        sa.Column("seq", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("tries", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("deaths", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column(
            "is_refiled",
            sa.Boolean(),
            server_default=sa.text("false"),
            nullable=False,
            comment="its request turned out to have another slot than the item",
        ),
        sa.Column("not_before", sa.DateTime(timezone=True)),
        sa.Column(
            "request",
            sa.JSON(),
            comment="where a redirect or a retry took it; null: as in the data",
        ),
        sa.Column("worker_id", sa.Integer()),
        sa.Column("token", sa.Uuid()),
        sa.Column("claimed_at", sa.DateTime(timezone=True)),
        sa.CheckConstraint("(token IS NULL) = (worker_id IS NULL)", name=op.f("work_claim_check")),
        sa.PrimaryKeyConstraint("item_id", "task_id", name="work_pkey"),
    )
    op.execute("""
        ALTER TABLE work SET (
            fillfactor = 80,
            autovacuum_vacuum_scale_factor = 0.01,
            autovacuum_vacuum_threshold = 1000,
            autovacuum_vacuum_cost_delay = 0,
            vacuum_truncate = off)
    """)
    op.create_index(
        "work_claimed_idx", "work", ["worker_id"], postgresql_where=sa.text("token IS NOT NULL")
    )
    op.create_index(
        "work_ready_idx",
        "work",
        ["queue_id", "kind_id", "is_stale", "nice", "seq"],
        postgresql_where=sa.text("token IS NULL AND not_before IS NULL AND deaths < 2"),
    )
    op.create_index(
        "work_retry_idx",
        "work",
        ["crawl_id", "not_before"],
        postgresql_where=sa.text("not_before IS NOT NULL AND tries > 0"),
    )
    op.create_index(
        "work_suspect_idx",
        "work",
        ["crawl_id", "is_stale", "nice", "seq"],
        postgresql_where=sa.text("token IS NULL AND not_before IS NULL AND deaths >= 2"),
    )
    op.create_index(
        "work_timer_idx",
        "work",
        ["crawl_id", "not_before"],
        postgresql_where=sa.text("not_before IS NOT NULL"),
    )
    op.create_table(
        "aliases",
        sa.Column("crawl_id", sa.Integer(), nullable=False),
        sa.Column(
            "key", sa.Uuid(), nullable=False, comment="the first 16 bytes of the name's SHA-256"
        ),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column(
            "item_id",
            sa.BigInteger(),
            comment="null: the item was deleted and its name stays taken",
        ),
        sa.ForeignKeyConstraint(
            ["item_id"],
            ["items.id"],
            name="aliases_item_id_fkey",
            ondelete="CASCADE",
            initially="DEFERRED",
            deferrable=True,
        ),
        sa.PrimaryKeyConstraint("crawl_id", "key", name="aliases_pkey"),
    )
    op.create_index("aliases_item_id_idx", "aliases", ["item_id"])
    op.create_table(
        "logins",
        sa.Column("crawl_id", sa.Integer(), nullable=False),
        sa.Column("generation", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("worker_id", sa.Integer(), comment="who logs in just now"),
        sa.Column("renewed_at", sa.DateTime(timezone=True)),
        sa.ForeignKeyConstraint(
            ["crawl_id"], ["crawls.id"], name="logins_crawl_id_fkey", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("crawl_id", name="logins_pkey"),
    )
    op.create_table(
        "queues",
        sa.Column("id", sa.Integer(), sa.Identity(), nullable=False),
        sa.Column("crawl_id", sa.Integer(), nullable=False),
        sa.Column("slot_id", sa.Integer(), nullable=False),
        sa.Column("is_live", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column(
            "next_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="whose turn: the earliest goes first",
        ),
        sa.Column("holder", sa.Integer(), comment="the worker that has the slot for itself"),
        sa.ForeignKeyConstraint(
            ["crawl_id"], ["crawls.id"], name="queues_crawl_id_fkey", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["slot_id"], ["limits.id"], name="queues_slot_id_fkey"),
        sa.PrimaryKeyConstraint("id", name="queues_pkey"),
        sa.UniqueConstraint("crawl_id", "slot_id", name="queues_crawl_id_slot_id_key"),
    )
    op.execute("ALTER TABLE queues SET (fillfactor = 50)")
    op.create_index(
        "queues_held_idx",
        "queues",
        ["crawl_id", "holder", "next_at"],
        postgresql_where=sa.text("is_live AND holder IS NOT NULL"),
    )
    op.create_index("queues_slot_id_idx", "queues", ["slot_id"])
    op.create_index(
        "queues_turn_idx",
        "queues",
        ["crawl_id", "next_at"],
        postgresql_where=sa.text("is_live AND holder IS NULL"),
    )
    op.create_table(
        "results",
        sa.Column("item_id", sa.BigInteger(), nullable=False),
        sa.Column("task_id", sa.Integer(), nullable=False),
        sa.Column("task_version", sa.Text(), nullable=False),
        sa.Column("metadata", sa.JSON(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("is_successful", sa.Boolean(), nullable=False),
        sa.Column("is_held", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("completed_at", sa.DateTime(timezone=True)),
        sa.Column("invalidated_at", sa.DateTime(timezone=True)),
        sa.Column("expires_at", sa.DateTime(timezone=True)),
        sa.Column(
            "due_at",
            sa.DateTime(timezone=True),
            comment="expires_at until the expiry is staged, then null",
        ),
        sa.Column("ttl_overridden", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.ForeignKeyConstraint(
            ["item_id"], ["items.id"], name="results_item_id_fkey", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("item_id", "task_id", name="results_pkey"),
    )
    op.create_index(
        "results_due_idx",
        "results",
        ["task_id", "due_at"],
        postgresql_where=sa.text("due_at IS NOT NULL"),
    )
    op.create_table(
        "states",
        sa.Column("crawl_id", sa.Integer(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False, comment="a key of spider.state as JSON"),
        sa.Column("value", sa.JSON(none_as_null=True), comment="null: the key was deleted"),
        sa.Column(
            "changed_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.ForeignKeyConstraint(
            ["crawl_id"], ["crawls.id"], name="states_crawl_id_fkey", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("crawl_id", "key", name="states_pkey"),
    )
    op.create_table(
        "tags",
        sa.Column("item_id", sa.BigInteger(), nullable=False),
        sa.Column("tag_name", sa.Text(), nullable=False),
        sa.Column("crawl_id", sa.Integer(), nullable=False),
        sa.Column("value", sa.JSON(none_as_null=True)),
        sa.ForeignKeyConstraint(
            ["item_id"], ["items.id"], name="tags_item_id_fkey", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("item_id", "tag_name", name="tags_pkey"),
    )
    op.create_index(
        "tags_crawl_id_tag_name_item_id_idx", "tags", ["crawl_id", "tag_name", "item_id"]
    )
    op.create_table(
        "tasks",
        sa.Column("id", sa.Integer(), sa.Identity(), nullable=False),
        sa.Column("crawl_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("spider", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("ttl", sa.Interval(), comment="null: never expires"),
        sa.Column("nice", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("slot_id", sa.Integer(), comment="null: the item's"),
        sa.Column("max_failures", sa.Integer()),
        sa.Column(
            "is_item_exclusive", sa.Boolean(), server_default=sa.text("false"), nullable=False
        ),
        sa.Column("is_enabled", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("is_registered", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column(
            "is_callback",
            sa.Boolean(),
            server_default=sa.text("false"),
            nullable=False,
            comment="a plain callback: its items are requests",
        ),
        sa.Column(
            "definition",
            sa.Uuid(),
            nullable=False,
            comment="a digest of all that the code declares",
        ),
        sa.Column(
            "limit_ids",
            sa.ARRAY(sa.Integer()),
            server_default=sa.text("'{}'"),
            nullable=False,
            comment="what all its work keeps to",
        ),
        sa.ForeignKeyConstraint(
            ["crawl_id"], ["crawls.id"], name="tasks_crawl_id_fkey", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["slot_id"], ["limits.id"], name="tasks_slot_id_fkey"),
        sa.PrimaryKeyConstraint("id", name="tasks_pkey"),
        sa.UniqueConstraint("crawl_id", "name", name="tasks_crawl_id_name_key"),
    )
    op.create_table(
        "workers",
        sa.Column("id", sa.Integer(), sa.Identity(), nullable=False),
        sa.Column("crawl_id", sa.Integer(), nullable=False),
        sa.Column("spider", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("process_id", sa.Integer(), nullable=False),
        sa.Column("job", sa.Text(), comment="Scrapyd's job id"),
        sa.Column(
            "started_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("locked_at", sa.DateTime(timezone=True)),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("has_started", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("stopped_at", sa.DateTime(timezone=True)),
        sa.Column("reason", sa.Text(), comment="why it stopped"),
        sa.ForeignKeyConstraint(
            ["crawl_id"], ["crawls.id"], name="workers_crawl_id_fkey", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="workers_pkey"),
    )
    op.create_index(
        "workers_living_idx",
        "workers",
        ["crawl_id"],
        postgresql_where=sa.text("stopped_at IS NULL"),
    )
    op.create_table(
        "failures",
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("item_id", sa.BigInteger(), nullable=False),
        sa.Column("task_id", sa.Integer(), nullable=False),
        sa.Column("is_refusal", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("error", sa.JSON(), nullable=False),
        sa.Column(
            "occurred_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("handled_at", sa.DateTime(timezone=True)),
        sa.Column("handled_by", sa.Text()),
        sa.ForeignKeyConstraint(
            ["item_id", "task_id"],
            ["results.item_id", "results.task_id"],
            name="failures_result_fkey",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name="failures_pkey"),
    )
    op.create_index("failures_item_id_task_id_idx", "failures", ["item_id", "task_id"])
    op.create_index(
        "failures_open_idx",
        "failures",
        ["task_id", "is_refusal", "id"],
        postgresql_where=sa.text("handled_at IS NULL"),
    )
    op.create_table(
        "kinds",
        sa.Column("id", sa.Integer(), sa.Identity(), nullable=False),
        sa.Column("task_id", sa.Integer(), nullable=False),
        sa.Column(
            "limit_ids",
            sa.ARRAY(sa.Integer()),
            server_default=sa.text("'{}'"),
            nullable=False,
            comment="those that its items' tags call for, ordered",
        ),
        sa.ForeignKeyConstraint(
            ["task_id"], ["tasks.id"], name="kinds_task_id_fkey", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="kinds_pkey"),
        sa.UniqueConstraint("task_id", "limit_ids", name="kinds_task_id_limit_ids_key"),
    )
    op.create_table(
        "sweeps",
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("crawl_id", sa.Integer(), nullable=False),
        sa.Column("task_id", sa.Integer()),
        sa.Column("tags", sa.ARRAY(sa.Text()), nullable=False),
        sa.Column("unhold", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("after_item_id", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column(
            "opened_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.ForeignKeyConstraint(
            ["crawl_id"], ["crawls.id"], name="sweeps_crawl_id_fkey", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["task_id"], ["tasks.id"], name="sweeps_task_id_fkey", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="sweeps_pkey"),
    )
    op.create_index("sweeps_crawl_id_idx", "sweeps", ["crawl_id"])
    op.create_table(
        "tag_limits",
        sa.Column("task_id", sa.Integer(), nullable=False),
        sa.Column("limit_id", sa.Integer(), nullable=False),
        sa.Column(
            "tags",
            sa.ARRAY(sa.Text()),
            nullable=False,
            comment="an item with all of them keeps to it",
        ),
        sa.ForeignKeyConstraint(["limit_id"], ["limits.id"], name="tag_limits_limit_id_fkey"),
        sa.ForeignKeyConstraint(
            ["task_id"], ["tasks.id"], name="tag_limits_task_id_fkey", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("task_id", "limit_id", name="tag_limits_pkey"),
    )
    op.create_table(
        "task_dependencies",
        sa.Column("task_id", sa.Integer(), nullable=False),
        sa.Column("depends_on_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["depends_on_id"],
            ["tasks.id"],
            name="task_dependencies_depends_on_id_fkey",
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["task_id"], ["tasks.id"], name="task_dependencies_task_id_fkey", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("task_id", "depends_on_id", name="task_dependencies_pkey"),
    )
    op.create_table(
        "task_tags",
        sa.Column("crawl_id", sa.Integer(), nullable=False),
        sa.Column("tag_name", sa.Text(), nullable=False),
        sa.Column("task_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["task_id"], ["tasks.id"], name="task_tags_task_id_fkey", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("crawl_id", "tag_name", "task_id", name="task_tags_pkey"),
    )
