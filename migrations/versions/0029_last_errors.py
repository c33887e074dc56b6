"""A worker's last error, and when it was told."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "workers", sa.Column("error", sa.Text(), comment="the last that its process logged")
    )
    op.add_column("workers", sa.Column("error_at", sa.DateTime(timezone=True)))
