"""How many items each attempt scraped.

Of attempts that ended before it is not known.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "attempts",
        sa.Column("scraped", sa.Integer(), comment="how many items it scraped; null: none"),
    )
