"""The file of a worker's spider, by which older code than what is on disk is told."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "workers",
        sa.Column("code_file", sa.Text(), comment="what its process's code is a digest of"),
    )
