"""Runs that their spider closed, and runs that work opened again; sweeps of what those left."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0048"
down_revision = "0047"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "runs",
        sa.Column(
            "is_closed",
            sa.Boolean(),
            nullable=False,
            server_default=sa.text("false"),
            comment="its spider closed it, with work left",
        ),
    )
    op.add_column(
        "runs",
        sa.Column(
            "continued_at",
            sa.DateTime(timezone=True),
            comment="when work opened it again after its end, last",
        ),
    )
    op.drop_constraint(op.f("runs_moments_check"), "runs")
    within = "{0} BETWEEN '0001-01-02 00:00:00+00' AND '9999-12-30 00:00:00+00'"
    moments = ("started_at", "ended_at", "continued_at")
    op.create_check_constraint(
        op.f("runs_moments_check"), "runs", " AND ".join(map(within.format, moments))
    )
    op.add_column(
        "sweeps",
        sa.Column("left_run", sa.Integer(), comment="the run whose outstanding pages are left"),
    )
    op.alter_column(
        "results",
        "hold",
        existing_type=sa.Text(),
        comment="skipped, stashed or left: set aside",
        existing_comment="skipped or stashed: set aside",
    )
    op.create_check_constraint(
        op.f("sweeps_left_run_check"), "sweeps", "left_run BETWEEN 1 AND 1073741824"
    )
