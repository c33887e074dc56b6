"""Sessions of browsers, and that there were tokens."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "tokens_made",
        sa.Column("id", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("last_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("tokens_made_id_check")),
        sa.PrimaryKeyConstraint("id", name="tokens_made_pkey"),
    )
    op.execute(
        "INSERT INTO tokens_made (id, last_at) "
        "SELECT 1, max(created_at) FROM tokens HAVING count(*) > 0"
    )
    op.create_table(
        "web_sessions",
        sa.Column("digest", sa.LargeBinary(), nullable=False, comment="SHA-256 of the cookie"),
        sa.Column("token_name", sa.Text(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["token_name"], ["tokens.name"], name="web_sessions_token_name_fkey", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("digest", name="web_sessions_pkey"),
    )
