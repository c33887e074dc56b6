"""What crawls did in all, by task; requests by HTTP status, bytes and ends of executions of runs.

Nothing is known of what was done before: counting begins at zero.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

_TOTALS = ("done", "retried", "failed", "refused", "gone", "items", "scraped", "bytes")


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), nullable=False, server_default=sa.text("0"))


def _statuses() -> sa.Column[object]:
    return sa.Column(
        "statuses",
        sa.JSON(),
        nullable=False,
        server_default=sa.text("'{}'"),
        comment="how many requests by their HTTP status; none: they were not answered",
    )


def upgrade() -> None:
    op.create_table(
        "totals",
        sa.Column("crawl_id", sa.Integer(), nullable=False),
        sa.Column("task_id", sa.Integer(), nullable=False, comment="0: what is of no task"),
        *map(_number, _TOTALS),
        _statuses(),
        sa.PrimaryKeyConstraint("crawl_id", "task_id", name="totals_pkey"),
        sa.ForeignKeyConstraint(
            ["crawl_id"], ["crawls.id"], name="totals_crawl_id_fkey", ondelete="CASCADE"
        ),
    )
    for name in ("gone", "scraped"):
        op.add_column("task_minutes", _number(name))
    for name in ("retried", "refused", "gone", "bytes"):
        op.add_column("runs", _number(name))
    op.add_column("runs", _statuses())
