"""Runs have numbers, by which results are told from those of earlier runs: clocks go back.

All results of before are taken for those of the first run, and the run of a crawl for that one.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "crawls",
        sa.Column(
            "run",
            sa.Integer(),
            nullable=False,
            server_default=sa.text("0"),
            comment="the number of its run, from 1; 0 before the first",
        ),
    )
    op.execute("UPDATE crawls SET run = 1")
    op.create_check_constraint("run", "crawls", "run BETWEEN 0 AND 1073741824")
    op.add_column(
        "results",
        sa.Column(
            "run", sa.Integer(), comment="the run of its crawl that it is of; null: the first"
        ),
    )
