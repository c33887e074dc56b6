"""How long websites took to answer, as histograms: by task, and by slot."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0040"
down_revision = "0039"
branch_labels = None
depends_on = None


def _histogram() -> tuple[sa.Column[list[int]], sa.Column[float]]:
    return (
        sa.Column(
            "answers",
            postgresql.ARRAY(sa.BigInteger()),
            nullable=False,
            comment="how many came within each bound and not the one before; the last: later",
        ),
        sa.Column(
            "seconds", sa.Double(), nullable=False, comment="that they took, all of them together"
        ),
    )


def upgrade() -> None:
    op.create_table(
        "task_latencies",
        sa.Column("crawl_id", sa.Integer(), nullable=False),
        sa.Column("task_id", sa.Integer(), nullable=False, comment="0: what is of no task"),
        *_histogram(),
        sa.PrimaryKeyConstraint("crawl_id", "task_id", name="task_latencies_pkey"),
        sa.ForeignKeyConstraint(
            ["crawl_id"], ["crawls.id"], name="task_latencies_crawl_id_fkey", ondelete="CASCADE"
        ),
    )
    op.create_table(
        "slot_latencies",
        sa.Column("limit_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("told_at", sa.DateTime(timezone=True), nullable=False),
        *_histogram(),
        sa.PrimaryKeyConstraint("limit_id", name="slot_latencies_pkey"),
    )
    op.create_index("slot_latencies_told_at_idx", "slot_latencies", ["told_at"])
