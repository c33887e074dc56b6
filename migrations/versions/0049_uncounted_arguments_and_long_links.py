"""Workers say which of their arguments tell no crawls apart; runs count links that are too long."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0049"
down_revision = "0048"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "workers",
        sa.Column(
            "uncounted",
            sa.ARRAY(sa.Text()),
            nullable=False,
            server_default=sa.text("'{}'"),
            comment="names of the arguments of its start that tell no crawls apart",
        ),
    )
    op.add_column(
        "runs",
        sa.Column(
            "long_links",
            sa.BigInteger(),
            nullable=False,
            server_default=sa.text("0"),
            comment="links left out because they are longer than URLLENGTH_LIMIT",
        ),
    )
    op.add_column(
        "runs",
        sa.Column("url_limit", sa.Integer(), comment="URLLENGTH_LIMIT, as of the last of these"),
    )
