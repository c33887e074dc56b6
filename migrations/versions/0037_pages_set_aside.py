"""Pages that are set aside: skipped or stashed, with how many of a stash are kept in work."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("results", sa.Column("hold", sa.Text, comment="skipped or stashed: set aside"))
    op.create_index(
        "results_hold_idx",
        "results",
        ["task_id", "hold", "item_id"],
        postgresql_where=sa.text("hold IS NOT NULL"),
    )
    op.add_column(
        "crawls",
        sa.Column("dripfeed", sa.Integer, comment="how many pages of its stash are kept in work"),
    )
    op.create_check_constraint(op.f("crawls_dripfeed_check"), "crawls", "dripfeed > 0")
    # Below zero are the attempts that a person gave a page.
    op.drop_index("work_retry_idx", "work")
    op.create_index(
        "work_retry_idx",
        "work",
        ["crawl_id", "not_before"],
        postgresql_where=sa.text("not_before IS NOT NULL AND tries <> 0"),
    )
