"""Held results in the order of their items, so that they are shown page by page."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_index("results_held_idx", "results")
    op.create_index(
        "results_held_idx",
        "results",
        ["task_id", "item_id"],
        postgresql_where=sa.text("is_held"),
    )
