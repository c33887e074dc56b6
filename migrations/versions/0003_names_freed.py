"""How many commits of a crawl freed names, for the workers that remember which are taken."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    freed = "how many commits freed names; by it workers know that what they know is outdated"
    op.add_column(
        "crawls",
        sa.Column(
            "names_freed",
            sa.BigInteger(),
            server_default=sa.text("0"),
            nullable=False,
            comment=freed,
        ),
    )
