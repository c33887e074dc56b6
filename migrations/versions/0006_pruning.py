"""When cookies are of no use any more, and indexes by which what is old is found."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

# The year 3000, as far as what sites sent can be a time at all.
EXPIRES = r"""
    UPDATE cookies SET expires_at = CASE
        WHEN cookie IS NULL THEN changed_at
        WHEN cookie->>'expires' ~ '^-' THEN to_timestamp(0)
        WHEN cookie->>'expires' ~ '^\d{1,15}(\.\d+)?$'
            THEN to_timestamp(least(CAST(cookie->>'expires' AS float8), 32503680000))
        END
"""


def upgrade() -> None:
    comment = "when it expires, or was deleted; null: not by itself"
    op.add_column("cookies", sa.Column("expires_at", sa.DateTime(timezone=True), comment=comment))
    op.execute(EXPIRES)
    op.create_index("cookies_changed_idx", "cookies", ["crawl_id", "jar", "domain", "changed_at"])
    op.create_index(
        "cookies_expires_at_idx",
        "cookies",
        ["expires_at"],
        postgresql_where=sa.text("expires_at IS NOT NULL"),
    )
    op.create_index(
        "failures_handled_at_idx",
        "failures",
        ["handled_at"],
        postgresql_where=sa.text("handled_at IS NOT NULL"),
    )
