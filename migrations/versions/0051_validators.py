"""Results keep the validators of the response that they were made from."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0051"
down_revision = "0050"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "results",
        sa.Column(
            "validators",
            sa.JSON(),
            comment="of the response that it was made from, where its task asks for changes alone",
        ),
    )
