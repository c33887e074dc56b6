"""Queues of a URL frontier, its servers, and which items are its URLs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0043"
down_revision = "0042"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "frontier_queues",
        sa.Column("queue_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("crawl_id", sa.Integer(), nullable=False),
        sa.Column(
            "delay",
            sa.BigInteger(),
            comment="seconds between two hand-outs; null: the default",
        ),
        sa.Column("blocked_until", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("last_served", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column(
            "crawl_limit",
            sa.BigInteger(),
            comment="nothing is handed out once so many are completed",
        ),
        sa.Column(
            "completed",
            sa.BigInteger(),
            server_default=sa.text("0"),
            nullable=False,
            comment="how many are, where there is a limit; else not counted",
        ),
        sa.Column(
            "is_deleting",
            sa.Boolean(),
            server_default=sa.text("false"),
            nullable=False,
            comment="its URLs are being deleted, a part at a time",
        ),
        sa.CheckConstraint(
            "delay >= 0 AND blocked_until >= 0 AND last_served >= 0 AND crawl_limit > 0 "
            "AND completed >= 0",
            name=op.f("frontier_queues_numbers_check"),
        ),
        sa.ForeignKeyConstraint(
            ["queue_id"], ["queues.id"], name="frontier_queues_queue_id_fkey", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("queue_id", name="frontier_queues_pkey"),
    )
    op.create_index(
        "frontier_queues_crawl_id_queue_id_idx", "frontier_queues", ["crawl_id", "queue_id"]
    )
    op.create_index(
        "frontier_queues_deleting_idx",
        "frontier_queues",
        ["crawl_id", "queue_id"],
        postgresql_where=sa.text("is_deleting"),
    )
    op.execute("ALTER TABLE frontier_queues SET (fillfactor = 50)")
    op.create_table(
        "frontier",
        sa.Column("id", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column(
            "is_active",
            sa.Boolean(),
            server_default=sa.text("true"),
            nullable=False,
            comment="false: nothing is handed out",
        ),
        sa.Column(
            "default_delay",
            sa.BigInteger(),
            server_default=sa.text("1"),
            nullable=False,
            comment="seconds between two hand-outs of a queue",
        ),
        sa.CheckConstraint("id = 1", name=op.f("frontier_id_check")),
        sa.CheckConstraint("default_delay >= 0", name=op.f("frontier_default_delay_check")),
        sa.PrimaryKeyConstraint("id", name="frontier_pkey"),
    )
    op.execute("INSERT INTO frontier (id) VALUES (1)")
    op.create_table(
        "frontier_nodes",
        sa.Column("process_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column(
            "address", sa.Text(), nullable=False, comment="host:port, as its clients reach it"
        ),
        sa.Column(
            "is_active",
            sa.Boolean(),
            server_default=sa.text("true"),
            nullable=False,
            comment="false: this server hands nothing out",
        ),
        sa.ForeignKeyConstraint(
            ["process_id"],
            ["processes.id"],
            name="frontier_nodes_process_id_fkey",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("process_id", name="frontier_nodes_pkey"),
    )
    op.add_column(
        "items",
        sa.Column(
            "in_frontier",
            sa.Boolean(),
            comment="true: a URL of a frontier, with the tag `url`; null: it is none",
        ),
    )
    op.create_index(
        "items_frontier_idx",
        "items",
        ["crawl_id", "slot_id", "id"],
        postgresql_where=sa.text("in_frontier"),
    )
    op.create_index(
        "work_held_idx",
        "work",
        ["queue_id", "not_before"],
        postgresql_where=sa.text("not_before IS NOT NULL AND tries > 0"),
    )
    op.create_index(
        "work_dated_idx",
        "work",
        ["queue_id"],
        postgresql_where=sa.text("not_before IS NOT NULL AND tries = 0"),
    )
