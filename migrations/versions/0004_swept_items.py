"""How many items a sweep has been at."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    swept = sa.Column("swept", sa.BigInteger(), server_default=sa.text("0"), nullable=False)
    op.add_column("sweeps", swept)
