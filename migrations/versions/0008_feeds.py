"""Feeds."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "feed_items",
        sa.Column("feed_id", sa.Integer(), nullable=False),
        sa.Column("journal_id", sa.BigInteger(), nullable=False),
        sa.Column(
            "is_written",
            sa.Boolean(),
            server_default=sa.text("false"),
            nullable=False,
            comment="of a feed that is written whole; of another one the row goes",
        ),
        sa.PrimaryKeyConstraint("feed_id", "journal_id", name="feed_items_pkey"),
    )
    op.create_index(
        "feed_items_unwritten_idx",
        "feed_items",
        ["feed_id", "journal_id"],
        postgresql_where=sa.text("NOT is_written"),
    )
    op.create_table(
        "feeds",
        sa.Column("id", sa.Integer(), sa.Identity(), nullable=False),
        sa.Column("crawl_id", sa.Integer(), nullable=False),
        sa.Column(
            "name",
            sa.Text(),
            nullable=False,
            comment="the template of its URI, without credentials",
        ),
        sa.Column(
            "run_started_at", sa.DateTime(timezone=True), comment="the run that it takes part in"
        ),
        sa.Column("token", sa.Uuid(), comment="its writer's"),
        sa.Column("uri", sa.Text(), comment="where it is being written; null: that has not begun"),
        sa.Column("batch", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column(
            "count",
            sa.BigInteger(),
            server_default=sa.text("0"),
            nullable=False,
            comment="of items there",
        ),
        sa.Column(
            "size",
            sa.BigInteger(),
            comment="bytes of the file that stand, whatever comes after them",
        ),
        sa.Column(
            "mark",
            sa.BigInteger(),
            comment="a digest of what stands before the end of these bytes",
        ),
        sa.ForeignKeyConstraint(
            ["crawl_id"], ["crawls.id"], name="feeds_crawl_id_fkey", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="feeds_pkey"),
        sa.UniqueConstraint("crawl_id", "name", name="feeds_crawl_id_name_key"),
    )
