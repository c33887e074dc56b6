"""Stalls beside deaths, how often work ended badly alone, and what each worker's engine has."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

UNCLAIMED = "token IS NULL AND not_before IS NULL"


def upgrade() -> None:
    for name in ("stalls", "alone_deaths", "alone_stalls"):
        op.add_column(
            "work", sa.Column(name, sa.SmallInteger(), server_default=sa.text("0"), nullable=False)
        )
    op.add_column(
        "work",
        sa.Column(
            "is_suspect",
            sa.Boolean(),
            sa.Computed("deaths >= 2 OR stalls >= 2", persisted=True),
            nullable=False,
        ),
    )
    op.drop_index("work_ready_idx", "work")
    op.drop_index("work_suspect_idx", "work")
    op.create_index(
        "work_ready_idx",
        "work",
        ["queue_id", "kind_id", "is_stale", "nice", "seq"],
        postgresql_where=sa.text(f"{UNCLAIMED} AND NOT is_suspect"),
    )
    op.create_index(
        "work_suspect_idx",
        "work",
        ["crawl_id", "is_stale", "nice", "seq"],
        postgresql_where=sa.text(f"{UNCLAIMED} AND is_suspect"),
    )
    op.create_table(
        "handed",
        sa.Column("worker_id", sa.Integer(), nullable=False),
        sa.Column("items", postgresql.ARRAY(sa.BigInteger()), nullable=False),
        sa.Column("tasks", postgresql.ARRAY(sa.Integer()), nullable=False),
        sa.ForeignKeyConstraint(
            ["worker_id"], ["workers.id"], name="handed_worker_id_fkey", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("worker_id", name="handed_pkey"),
    )
