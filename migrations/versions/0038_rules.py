"""Rules of crawls, and which of them an attempt kept to."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0038"
down_revision = "0037"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "rulesets",
        sa.Column("id", sa.Integer(), sa.Identity(), primary_key=True),
        sa.Column(
            "crawl_id",
            sa.Integer(),
            sa.ForeignKey("crawls.id", name="rulesets_crawl_id_fkey", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("number", sa.Integer(), nullable=False, comment="of those of its crawl, from 1"),
        sa.Column("rules", sa.JSON(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            nullable=False,
            server_default=sa.func.now(),
        ),
        sa.Column("created_by", sa.Text()),
        sa.Column("note", sa.Text(), comment="why, for those who look"),
        sa.UniqueConstraint("crawl_id", "number", name="rulesets_crawl_id_number_key"),
    )
    op.add_column(
        "crawls",
        sa.Column("ruleset_id", sa.Integer(), comment="the rules in force; null: it never had any"),
    )
    op.add_column(
        "attempts",
        sa.Column("ruleset_id", sa.Integer(), comment="the rules that it kept to; null: none"),
    )
    op.add_column(
        "sweeps",
        sa.Column(
            "ruleset_id", sa.Integer(), comment="the rules that waiting work is looked at with"
        ),
    )
    counts = {
        "held": "how many pages these rules have set aside",
        "freed": "how many that were set aside they have taken back",
    }
    for name, comment in counts.items():
        op.add_column(
            "sweeps",
            sa.Column(
                name,
                sa.BigInteger(),
                nullable=False,
                server_default=sa.text("0"),
                comment=comment,
            ),
        )
