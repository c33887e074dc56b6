"""Pages know their least depth: the links between them, and what is still to be worked out."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0041"
down_revision = "0040"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "crawls",
        sa.Column(
            "tracks_depth",
            sa.Boolean(),
            server_default=sa.text("false"),
            nullable=False,
            comment="its pages have a least depth",
        ),
    )
    op.add_column(
        "crawls",
        sa.Column(
            "depth_limit",
            sa.Integer(),
            comment="pages that are deeper are not fetched; null: no limit",
        ),
    )
    op.add_column(
        "crawls",
        sa.Column(
            "is_depth_limit_set",
            sa.Boolean(),
            server_default=sa.text("false"),
            nullable=False,
            comment="by a person; else it is DEPTH_LIMIT, as of its last start",
        ),
    )
    op.create_check_constraint(op.f("crawls_depth_limit_check"), "crawls", "depth_limit >= 0")
    op.create_table(
        "depths",
        sa.Column("item_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("crawl_id", sa.Integer(), nullable=False),
        sa.Column(
            "depth",
            sa.Integer(),
            nullable=False,
            comment="the least that is known, from 0; 2147483647: no path is known",
        ),
        sa.Column(
            "via",
            sa.BigInteger(),
            comment="the item whose link gives it that depth; null: it has none before it",
        ),
        sa.Column("moved_to", sa.BigInteger(), comment="the item that it was merged into"),
        sa.PrimaryKeyConstraint("item_id", name="depths_pkey"),
    )
    op.create_index(
        "depths_crawl_id_depth_item_id_idx",
        "depths",
        ["crawl_id", "depth", "item_id"],
        postgresql_where=sa.text("moved_to IS NULL"),
    )
    op.create_index(
        "depths_moved_to_idx",
        "depths",
        ["moved_to"],
        postgresql_where=sa.text("moved_to IS NOT NULL"),
    )
    op.create_table(
        "links",
        sa.Column("parent_id", sa.BigInteger(), nullable=False),
        sa.Column("part", sa.Integer(), nullable=False, comment="of a page, from 0"),
        sa.Column(
            "children",
            sa.ARRAY(sa.BigInteger()),
            nullable=False,
            comment="up to 1,000 items; some may be gone, or merged into others",
        ),
        sa.PrimaryKeyConstraint("parent_id", "part", name="links_pkey"),
    )
    op.create_table(
        "depth_work",
        sa.Column("crawl_id", sa.Integer(), nullable=False),
        sa.Column(
            "kind",
            sa.SmallInteger(),
            nullable=False,
            comment="0: refresh its work; 1: it may have this depth; 2: look at its links",
        ),
        sa.Column("depth", sa.Integer(), nullable=False),
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("item_id", sa.BigInteger(), nullable=False),
        sa.Column("via", sa.BigInteger(), comment="of kind 1: whose link says so; null: nobody's"),
        sa.Column("part", sa.Integer(), comment="of kind 2: which of its links"),
        sa.PrimaryKeyConstraint("crawl_id", "kind", "depth", "id", name="depth_work_pkey"),
    )
    op.create_table(
        "depth_sweeps",
        sa.Column("id", sa.Integer(), sa.Identity(always=False), nullable=False),
        sa.Column("crawl_id", sa.Integer(), nullable=False),
        sa.Column(
            "phase",
            sa.Text(),
            nullable=False,
            comment="mark, clear, roots, settle: depths are found anew; range: refresh work",
        ),
        sa.Column("low", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("high", sa.Integer(), server_default=sa.text("2147483647"), nullable=False),
        sa.Column("after_depth", sa.Integer(), server_default=sa.text("-1"), nullable=False),
        sa.Column("after_item", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("swept", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.CheckConstraint(
            "phase IN ('missing', 'mark', 'clear', 'roots', 'settle', 'range')",
            name=op.f("depth_sweeps_phase_check"),
        ),
        sa.ForeignKeyConstraint(
            ["crawl_id"], ["crawls.id"], name="depth_sweeps_crawl_id_fkey", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="depth_sweeps_pkey"),
    )
    op.create_index("depth_sweeps_crawl_id_idx", "depth_sweeps", ["crawl_id"])
    for table, scale, threshold in (("depths", "0.05", "5000"), ("depth_work", "0.01", "5000")):
        op.execute(
            f"ALTER TABLE {table} SET (autovacuum_vacuum_scale_factor = {scale}, "
            f"autovacuum_vacuum_threshold = {threshold}, autovacuum_vacuum_cost_delay = 0)"
        )
