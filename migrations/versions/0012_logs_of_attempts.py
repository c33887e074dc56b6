"""What callbacks logged, with their attempt."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    comment = "what its callbacks logged: seconds after the claim, category, message"
    op.add_column("attempts", sa.Column("log", sa.JSON(), comment=comment))
