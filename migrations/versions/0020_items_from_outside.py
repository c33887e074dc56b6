"""Whether an item came over HTTP; stored requests of other schemes than http and https are marked.

The mark is what the scheduler writes into such requests from here on. Those that are stored by now
were yielded by spiders, as far as anybody can tell.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

# Puts the mark in front of a request's members, which stay letter by letter.
MARK = """
    CREATE FUNCTION pg_temp.marked(request text, scheme text) RETURNS text LANGUAGE sql AS $$
        SELECT '{"scheme": "' || lower(scheme) || '"' ||
            CASE WHEN ltrim(substr(ltrim(request), 2)) LIKE '}%' THEN '' ELSE ', ' END ||
            substr(ltrim(request), 2)
    $$
"""

# Most are known by their text not to be concerned; into `\\u0000` PostgreSQL cannot look. It stands
# in the CASE, for conditions are evaluated in any order.
ITEMS = r"""
    UPDATE items i SET data = (
        SELECT CAST('{' || string_agg(to_json(key)::text || ': ' || CASE WHEN key = 'request'
            THEN pg_temp.marked(value::text, found.scheme) ELSE value::text END,
            ', ' ORDER BY place) || '}' AS json)
        FROM json_each(i.data) WITH ORDINALITY AS members(key, value, place))
    FROM (
        SELECT id, CASE
            WHEN data::text NOT LIKE '%"request"%' OR data::text LIKE '%\\u0000%'
                OR data::text ~ '^\{"url": "https?:' OR json_typeof(data) <> 'object' THEN NULL
            WHEN json_typeof(data->'request') = 'object' THEN
                substring(coalesce(data->'request'->'url', data->'url')::text
                    FROM '^"([a-zA-Z][a-zA-Z0-9+.-]*):') END AS scheme
        FROM items) AS found
    WHERE found.id = i.id AND lower(found.scheme) NOT IN ('http', 'https')
"""

WORK = r"""
    UPDATE work w SET request = CAST(pg_temp.marked(w.request::text, found.scheme) AS json)
    FROM (
        SELECT item_id, task_id, CASE
            WHEN request IS NULL OR request::text LIKE '%\\u0000%'
                OR json_typeof(request) <> 'object' THEN NULL
            ELSE substring((request->'url')::text
                FROM '^"([a-zA-Z][a-zA-Z0-9+.-]*):') END AS scheme
        FROM work) AS found
    WHERE found.item_id = w.item_id AND found.task_id = w.task_id
        AND lower(found.scheme) NOT IN ('http', 'https')
"""


def upgrade() -> None:
    op.add_column(
        "items",
        sa.Column(
            "is_from_outside",
            sa.Boolean(),
            comment="true: made or changed over HTTP; null: by the project or its people alone",
        ),
    )
    for statement in (MARK, ITEMS, WORK, "DROP FUNCTION pg_temp.marked(text, text)"):
        op.execute(sa.text(statement))
