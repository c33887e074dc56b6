"""Queues of a frontier know which server deletes them, so that others leave them to it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0045"
down_revision = "0044"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "frontier_queues",
        sa.Column("deleted_by", sa.Integer(), comment="the process that deletes its URLs"),
    )
