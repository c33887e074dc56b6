"""Indexes by which a task's results and delayed work are counted, however many others there are."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("results_held_idx", "results", ["task_id"], postgresql_where=sa.text("is_held"))
    op.create_index(
        "results_lapsed_idx",
        "results",
        ["task_id"],
        postgresql_where=sa.text(
            "completed_at IS NOT NULL AND due_at IS NULL "
            "AND (expires_at IS NOT NULL OR invalidated_at IS NOT NULL OR is_held)"
        ),
    )
    op.create_index(
        "results_lasting_idx",
        "results",
        ["task_id", "task_version"],
        postgresql_where=sa.text(
            "completed_at IS NOT NULL AND expires_at IS NULL AND invalidated_at IS NULL "
            "AND NOT is_held"
        ),
    )
    op.create_index(
        "work_delayed_idx",
        "work",
        ["task_id", "is_stale", "nice", "seq"],
        postgresql_where=sa.text("not_before IS NOT NULL AND token IS NULL"),
    )
