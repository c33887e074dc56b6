"""Tables named for what is in them: answers → commit_tokens, states → spider_state."""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

# PostgreSQL 18 names the constraints of NOT NULL columns too, older ones do not.
RENAME_CONSTRAINTS = """
    DO $$
    DECLARE
        one text;
    BEGIN
        FOR one IN SELECT conname FROM pg_constraint
            WHERE conrelid = '{new}'::regclass AND starts_with(conname, '{old}_')
        LOOP
            EXECUTE format('ALTER TABLE {new} RENAME CONSTRAINT %I TO %I',
                one, '{new}' || substr(one, length('{old}') + 1));
        END LOOP;
    END $$
"""


def upgrade() -> None:
    for old, new in (("answers", "commit_tokens"), ("states", "spider_state")):
        op.rename_table(old, new)
        op.execute(RENAME_CONSTRAINTS.format(old=old, new=new))
