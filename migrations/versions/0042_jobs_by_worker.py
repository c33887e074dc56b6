"""Jobs by their worker, those that ended as well: an attempt names the job that ran it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0042"
down_revision = "0041"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_index("jobs_worker_id_idx", "jobs")
    op.create_index(
        "jobs_worker_id_id_idx",
        "jobs",
        ["worker_id", "id"],
        postgresql_where=sa.text("worker_id IS NOT NULL"),
    )
