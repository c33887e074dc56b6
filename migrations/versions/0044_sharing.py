"""Crawls that have a frontier: what spiders make of their URLs is the frontier's, too."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0044"
down_revision = "0043"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "crawls",
        sa.Column(
            "frontier",
            sa.SmallInteger(),
            comment="2: it has one; 1: it is about to; null: it has none",
        ),
    )
    op.create_check_constraint(op.f("crawls_frontier_check"), "crawls", "frontier IN (1, 2)")
    op.create_index(
        "frontier_queues_limited_idx",
        "frontier_queues",
        ["crawl_id"],
        postgresql_where=sa.text("crawl_limit IS NOT NULL"),
    )
    # Nothing of before says which of their items spiders made.
    op.execute("""
        UPDATE crawls c SET frontier = 2
        WHERE EXISTS (SELECT FROM frontier_queues f WHERE f.crawl_id = c.id)
    """)
    op.execute("""
        INSERT INTO sweeps (crawl_id, tags) SELECT id, '{url}' FROM crawls WHERE frontier = 2
    """)
