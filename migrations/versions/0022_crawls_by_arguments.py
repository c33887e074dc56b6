"""Crawls by spider and arguments, and the salt of what tells their secrets apart.

What a crawl of before has in `arguments` stays: by it a start finds out whether that is its own.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("crawls", sa.Column("spider", sa.Text(), comment="that started it last"))
    op.add_column(
        "crawls",
        sa.Column(
            "given",
            sa.JSON(),
            comment="the spider's arguments at its last start; null: not known, of before 0022",
        ),
    )
    op.add_column(
        "crawls",
        sa.Column(
            "identity",
            sa.Text(),
            comment="a digest of spider and arguments; null: it is known by its name alone",
        ),
    )
    op.create_unique_constraint("crawls_identity_key", "crawls", ["identity"])
    op.create_table(
        "salts",
        sa.Column("id", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("salt", sa.Uuid(), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("salts_id_check")),
        sa.PrimaryKeyConstraint("id", name="salts_pkey"),
    )
    op.execute("INSERT INTO salts (id, salt) VALUES (1, gen_random_uuid())")
