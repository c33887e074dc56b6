"""Digests of the code that tasks run, and when it was seen to have changed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    digest = "a digest of the code that runs; null: not at hand"
    op.add_column("tasks", sa.Column("source", sa.Uuid(), comment=digest))
    op.add_column("tasks", sa.Column("source_changed_at", sa.DateTime(timezone=True)))
