"""Crawls are found by their state, however many are over."""

from __future__ import annotations

from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("crawls_state_id_idx", "crawls", ["state", "id"])
