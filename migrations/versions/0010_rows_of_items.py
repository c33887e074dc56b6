"""Names, tags and results go with their items by one statement, without a check of each row."""

from __future__ import annotations

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

DELETE_ROWS = """
    CREATE FUNCTION delete_rows_of_items() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        DELETE FROM results r USING gone WHERE r.item_id = gone.id;
        DELETE FROM tags g USING gone WHERE g.item_id = gone.id;
        DELETE FROM aliases a USING gone WHERE a.item_id = gone.id;
        RETURN NULL;
    END $$
"""

AFTER_DELETE = """
    CREATE TRIGGER delete_rows_of_items AFTER DELETE ON items
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION delete_rows_of_items()
"""


def upgrade() -> None:
    for table in ("aliases", "tags", "results"):
        op.drop_constraint(f"{table}_item_id_fkey", table, type_="foreignkey")
    op.execute(DELETE_ROWS)
    op.execute(AFTER_DELETE)
