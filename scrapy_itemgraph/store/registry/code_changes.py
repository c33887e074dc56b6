"""Changes of the code that tasks run: which results were made before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.model.tasks import Outdated
from scrapy_itemgraph.store.sql_conditions import IS_FRESH

if TYPE_CHECKING:
    import uuid
    from collections.abc import Mapping

    from sqlalchemy import Connection

MANY = 1000  # counted no further

NOTE = text("""
    UPDATE tasks t SET source = seen.source,
        source_changed_at = CASE WHEN t.source IS NOT NULL THEN clock_timestamp() END
    FROM unnest(CAST(:tasks AS int[]), CAST(:sources AS uuid[])) AS seen(task_id, source)
    WHERE t.id = seen.task_id AND t.source IS DISTINCT FROM seen.source
    RETURNING t.id
""")

# What the code of before made and nothing makes again by itself.
OLD_RESULTS = text(f"""
    SELECT t.id, t.name, t.is_callback, (SELECT count(*) FROM (
        SELECT FROM results r
        WHERE r.task_id = t.id AND r.completed_at < t.source_changed_at
            AND {IS_FRESH}
        LIMIT :many) AS old) AS made
    FROM tasks t
    WHERE t.id = ANY (CAST(:tasks AS int[])) AND t.source_changed_at IS NOT NULL
    ORDER BY t.name
""")  # noqa: S608 - our own conditions

FORGET = text("UPDATE tasks SET source_changed_at = NULL WHERE id = ANY (CAST(:tasks AS int[]))")


def note(connection: Connection, digests: Mapping[int, uuid.UUID]) -> list[Outdated]:
    """Remember the digests of tasks' sources, by number; return what earlier code has made."""
    given = {"tasks": list(digests), "sources": list(digests.values())}
    changed = set(connection.execute(NOTE, given).scalars())
    rows = connection.execute(OLD_RESULTS, {"tasks": list(digests), "many": MANY}).all()
    done = [row.id for row in rows if not row.made]
    if done:
        connection.execute(FORGET, {"tasks": done})
    return [
        Outdated(
            task=row.name,
            is_callback=row.is_callback,
            made=row.made,
            is_news=row.id in changed,
        )
        for row in rows
        if row.made
    ]
