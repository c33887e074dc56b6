"""How the page of an attempt was answered, and how many links it had."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0039"
down_revision = "0038"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "attempts",
        sa.Column("page", sa.JSON(), comment="how its page was answered, where that is kept"),
    )
