"""Pages that are gone are held and no failures: an index has them, apart from what is held."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("UPDATE results SET is_successful = false WHERE is_held AND is_successful")
    op.drop_index("results_held_idx", "results")
    op.create_index(
        "results_held_idx",
        "results",
        ["task_id", "item_id"],
        postgresql_where=sa.text("is_held AND NOT is_successful"),
    )
    op.create_index(
        "results_gone_idx",
        "results",
        ["task_id", "item_id"],
        postgresql_where=sa.text("is_held AND is_successful"),
    )
