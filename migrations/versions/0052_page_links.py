"""Pages that may be unchanged keep their links."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0052"
down_revision = "0051"
branch_labels = None
depends_on = None

DELETE_ROWS = """
    CREATE OR REPLACE FUNCTION delete_rows_of_items() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        DELETE FROM results r USING gone WHERE r.item_id = gone.id;
        DELETE FROM tags g USING gone WHERE g.item_id = gone.id;
        DELETE FROM aliases a USING gone WHERE a.item_id = gone.id;
        DELETE FROM page_links p USING gone WHERE p.item_id = gone.id;
        IF EXISTS (SELECT FROM gone WHERE gone.has_blobs) THEN
            DELETE FROM blobs b USING gone WHERE b.item_id = gone.id;
        END IF;
        RETURN NULL;
    END $$
"""


def upgrade() -> None:
    op.create_table(
        "page_links",
        sa.Column("item_id", sa.BigInteger(), nullable=False),
        sa.Column("task_id", sa.Integer(), nullable=False),
        sa.Column(
            "keys",
            postgresql.ARRAY(sa.Uuid()),
            nullable=False,
            comment="of the names in aliases of what it links to",
        ),
        sa.PrimaryKeyConstraint("item_id", "task_id", name="page_links_pkey"),
    )
    op.execute(DELETE_ROWS)
