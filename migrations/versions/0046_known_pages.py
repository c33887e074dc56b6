"""Results know which known page their redirect led to."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0046"
down_revision = "0045"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "results",
        sa.Column(
            "led_to",
            sa.Uuid(),
            comment="the key of the known page's name that its redirect led to",
        ),
    )
    op.create_index(
        "results_led_to_idx",
        "results",
        ["task_id", "led_to", "item_id"],
        postgresql_where=sa.text("led_to IS NOT NULL"),
    )
