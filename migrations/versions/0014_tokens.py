"""Tokens of the HTTP door."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "tokens",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False, comment="SHA-256 of the secret"),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.CheckConstraint("role IN ('read', 'operate')", name="role"),
        sa.PrimaryKeyConstraint("name", name="tokens_pkey"),
        sa.UniqueConstraint("digest", name="tokens_digest_key"),
    )
