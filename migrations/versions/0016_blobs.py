"""Binary data of items, and its contents."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

DELETE_ROWS = """
    CREATE OR REPLACE FUNCTION delete_rows_of_items() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        DELETE FROM results r USING gone WHERE r.item_id = gone.id;
        DELETE FROM tags g USING gone WHERE g.item_id = gone.id;
        DELETE FROM aliases a USING gone WHERE a.item_id = gone.id;
        IF EXISTS (SELECT FROM gone WHERE gone.has_blobs) THEN
            DELETE FROM blobs b USING gone WHERE b.item_id = gone.id;
        END IF;
        RETURN NULL;
    END $$
"""

LEAVE_CONTENTS = """
    CREATE FUNCTION leave_contents_of_blobs() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        UPDATE blob_contents c SET collect_at = clock_timestamp() + interval '1 day'
        WHERE c.id IN (
            SELECT o.id FROM blob_contents o
            WHERE o.id IN (SELECT gone.content_id FROM gone)
            ORDER BY o.id FOR NO KEY UPDATE);
        RETURN NULL;
    END $$
"""

AFTER = """
    CREATE TRIGGER leave_contents_after_{what} AFTER {what} ON blobs
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION leave_contents_of_blobs()
"""


def upgrade() -> None:
    op.create_table(
        "blob_contents",
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("sha256", sa.LargeBinary(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False, comment="bytes"),
        sa.Column(
            "store", sa.Text(), nullable=False, comment="'database', or the URL of another store"
        ),
        sa.Column(
            "state",
            sa.Text(),
            server_default=sa.text("'pending'"),
            nullable=False,
            comment="'pending' while it is written, 'stored', 'doomed' before it is deleted",
        ),
        sa.Column("content", sa.LargeBinary(), comment="null: it is in another store"),
        sa.Column(
            "announced_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("stored_at", sa.DateTime(timezone=True)),
        sa.Column("collect_at", sa.DateTime(timezone=True)),
        sa.CheckConstraint(
            "state IN ('pending', 'stored', 'doomed')", name=op.f("blob_contents_state_check")
        ),
        sa.PrimaryKeyConstraint("id", name="blob_contents_pkey"),
    )
    op.create_index("blob_contents_sha256_idx", "blob_contents", ["sha256"])
    op.create_index(
        "blob_contents_collect_at_idx",
        "blob_contents",
        ["collect_at"],
        postgresql_where=sa.text("collect_at IS NOT NULL"),
    )
    op.create_table(
        "blobs",
        sa.Column("item_id", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("content_id", sa.BigInteger(), nullable=False),
        sa.Column("mime", sa.Text()),
        sa.Column("attached_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["content_id"], ["blob_contents.id"], name="blobs_content_id_fkey"),
        sa.PrimaryKeyConstraint("item_id", "name", name="blobs_pkey"),
    )
    op.create_index("blobs_content_id_idx", "blobs", ["content_id"])
    comment = "true: it has or had blobs; null: it never had"
    op.add_column("items", sa.Column("has_blobs", sa.Boolean(), comment=comment))
    op.execute(DELETE_ROWS)
    op.execute(LEAVE_CONTENTS)
    for what in ("delete", "update"):
        op.execute(AFTER.format(what=what))
