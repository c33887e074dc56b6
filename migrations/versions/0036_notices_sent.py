"""Notices are sent: for which project, when next, and what each channel answered."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "notices",
        sa.Column("project", sa.Text(), comment="the Scrapy project whose people are told"),
    )
    op.add_column(
        "notices",
        sa.Column(
            "key",
            sa.Uuid(),
            nullable=False,
            server_default=sa.text("gen_random_uuid()"),
            comment="the id that receivers get, the same at each try",
        ),
    )
    op.add_column(
        "notices",
        sa.Column(
            "answers",
            JSONB(),
            nullable=False,
            server_default=sa.text("'{}'"),
            comment="by channel: what became of it, and what was said",
        ),
    )
    op.add_column(
        "notices",
        sa.Column(
            "holds",
            sa.Boolean(),
            comment="it says of a crawl what lasts, and that lasts still: it is not said again",
        ),
    )
    # What was written before anybody could be told is not sent any more.
    op.execute(
        "UPDATE notices n SET next_at = NULL, project = COALESCE("
        "(SELECT c.project FROM crawls c WHERE c.id = n.crawl_id), "
        "(SELECT r.project FROM runners r WHERE r.name = n.body ->> 'runner'))"
    )
    op.drop_index("notices_unsent_idx", "notices")
    op.create_index(
        "notices_due_idx",
        "notices",
        ["project", "next_at"],
        postgresql_where=sa.text("next_at IS NOT NULL"),
    )
    op.create_index("notices_created_at_idx", "notices", ["created_at"])
    op.create_index(
        "notices_holds_key",
        "notices",
        ["crawl_id", "what"],
        unique=True,
        postgresql_where=sa.text("holds"),
    )
    op.create_index("notices_crawl_idx", "notices", [sa.text("(body ->> 'crawl')"), "id"])
