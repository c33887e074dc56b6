"""Feeds know in which file of which host they are, and where the run begins in each."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0047"
down_revision = "0046"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "feeds",
        sa.Column("file", sa.Text(), comment="the host and the path of the file, where it is one"),
    )
    op.add_column(
        "feeds",
        sa.Column(
            "begins",
            sa.JSON(),
            comment="by file: the size that it had before this run, and the mark of that place",
        ),
    )
