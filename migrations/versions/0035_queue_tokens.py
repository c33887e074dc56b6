"""Tokens that may steer crawls and no more; how many lines a job's output has."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_constraint(op.f("tokens_role_check"), "tokens")
    op.create_check_constraint(
        op.f("tokens_role_check"), "tokens", "role IN ('read', 'queue', 'operate')"
    )
    op.add_column(
        "jobs",
        sa.Column(
            "output_lines",
            sa.BigInteger(),
            comment="lines written in all when that was kept",
        ),
    )
