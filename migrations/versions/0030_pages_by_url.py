"""Items by the URL in their data, however many there are.

The key is a column and no expression of the index, so that a change of an item's data that leaves
its URL alone touches no index. What PostgreSQL cannot read, a NUL or half a surrogate, has no key.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None

_KEY = r"""CASE
    WHEN strpos(CAST(data AS text), '\u') = 0 OR CAST(data AS text) !~ '\\u(0000|[dD][89a-fA-F])'
        THEN hashtext(CAST(data -> 'url' AS text)) END"""


def upgrade() -> None:
    op.add_column(
        "items",
        sa.Column(
            "url_key",
            sa.Integer(),
            sa.Computed(_KEY, persisted=True),
            comment="a hash of the URL in the data; null: there is none",
        ),
    )
    op.create_index(
        "items_url_key_idx",
        "items",
        ["url_key"],
        postgresql_where=sa.text("url_key IS NOT NULL"),
    )
