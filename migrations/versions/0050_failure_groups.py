"""Failures that are alike keep a number and how often they were."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0050"
down_revision = "0049"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "failure_groups",
        sa.Column("crawl_id", sa.Integer(), nullable=False),
        sa.Column("fingerprint", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False, comment="of those of its crawl, from 1"),
        sa.Column("first_seen", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_seen", sa.DateTime(timezone=True), nullable=False),
        sa.Column(
            "times", sa.BigInteger(), nullable=False, comment="failures of it that workers told of"
        ),
        sa.Column(
            "runs",
            sa.JSON(),
            nullable=False,
            comment="how many of them by run; the last ten runs that had some",
        ),
        sa.CheckConstraint(
            "first_seen BETWEEN '0001-01-02 00:00:00+00' AND '9999-12-30 00:00:00+00' "
            "AND last_seen BETWEEN '0001-01-02 00:00:00+00' AND '9999-12-30 00:00:00+00'",
            name=op.f("failure_groups_moments_check"),
        ),
        sa.CheckConstraint(
            "number BETWEEN 1 AND 1073741824", name=op.f("failure_groups_number_check")
        ),
        sa.ForeignKeyConstraint(
            ["crawl_id"], ["crawls.id"], name="failure_groups_crawl_id_fkey", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("crawl_id", "fingerprint", name="failure_groups_pkey"),
        sa.UniqueConstraint("crawl_id", "number", name="failure_groups_crawl_id_number_key"),
    )
    op.create_index("failure_groups_last_seen_idx", "failure_groups", ["last_seen"])
