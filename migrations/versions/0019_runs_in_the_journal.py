"""Where in the journal a run began, by number: the clock may go back between runs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "crawls",
        sa.Column(
            "run_journal_id",
            sa.BigInteger(),
            nullable=False,
            server_default=sa.text("0"),
            comment="the last number of its journal before the run",
        ),
    )
    # The last one before the run: by time, which is all that is known of runs that began before.
    op.execute("""
        UPDATE crawls c SET run_journal_id = before.id
        FROM (
            SELECT j.crawl_id, max(j.id) AS id FROM journal j JOIN crawls r ON r.id = j.crawl_id
            WHERE j.created_at < r.run_started_at GROUP BY j.crawl_id) AS before
        WHERE before.crawl_id = c.id
    """)
