"""What people look at: what was done by the minute, workers' memory and code, failures alike."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    number = {"nullable": False, "server_default": sa.text("0")}
    op.create_table(
        "task_minutes",
        sa.Column("crawl_id", sa.Integer(), nullable=False),
        sa.Column("minute", sa.DateTime(timezone=True), nullable=False),
        sa.Column(
            "task_id",
            sa.Integer(),
            nullable=False,
            comment="0: seeds and start(), which are of none",
        ),
        *(
            sa.Column(name, sa.BigInteger(), **number)
            for name in ("done", "retried", "failed", "refused", "items")
        ),
        sa.Column(
            "seconds",
            sa.Double(),
            comment="that executions took, from when the engine got them",
            **number,
        ),
        sa.PrimaryKeyConstraint("crawl_id", "minute", "task_id", name="task_minutes_pkey"),
    )
    op.create_index("task_minutes_minute_idx", "task_minutes", ["minute"])
    op.create_table(
        "limit_minutes",
        sa.Column("limit_id", sa.Integer(), nullable=False),
        sa.Column("minute", sa.DateTime(timezone=True), nullable=False),
        sa.Column("requests", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("limit_id", "minute", name="limit_minutes_pkey"),
    )
    op.create_index("limit_minutes_minute_idx", "limit_minutes", ["minute"])
    op.add_column(
        "workers",
        sa.Column(
            "seen_at",
            sa.DateTime(timezone=True),
            nullable=False,
            server_default=sa.func.now(),
        ),
    )
    op.add_column(
        "workers",
        sa.Column(
            "memory",
            sa.BigInteger(),
            comment="bytes that its process has, when it was seen last",
        ),
    )
    op.add_column(
        "workers",
        sa.Column("code", sa.Text(), comment="the version of its code: of its egg, or a digest"),
    )
    op.execute("UPDATE workers SET seen_at = coalesce(stopped_at, least(lease_until, now()))")
    op.add_column(
        "failures",
        sa.Column("fingerprint", sa.Uuid(), comment="failures that are alike have the same"),
    )
    # Failures that are there are told apart by their task and type alone.
    op.execute("UPDATE failures SET fingerprint = md5(concat(task_id, ' ', error->>'type'))::uuid")
    op.alter_column("failures", "fingerprint", nullable=False)
    op.create_index(
        "failures_fingerprint_idx",
        "failures",
        ["fingerprint", "id"],
        postgresql_where=sa.text("handled_at IS NULL"),
    )
