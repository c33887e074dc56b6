"""The delay of a slot that is meant, beside the least gap that its jitter allows."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    meant = "the gap that is meant, where jitter makes some shorter"
    op.add_column("limits", sa.Column("delay", sa.Double(), comment=meant))
