"""Which code each worker runs, and which tasks are left to workers of newer code.

Workers that run already have told of no code: none of theirs counts as older.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "workers",
        sa.Column(
            "sources",
            sa.JSON(),
            nullable=False,
            server_default=sa.text("'{}'"),
            comment="of its tasks, by name: digests of the code that it runs",
        ),
    )
    op.add_column(
        "tasks",
        sa.Column(
            "left_by",
            sa.ARRAY(sa.Integer()),
            nullable=False,
            server_default=sa.text("'{}'"),
            comment="workers of older code, which leave its work alone",
        ),
    )
