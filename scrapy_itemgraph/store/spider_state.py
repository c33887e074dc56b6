"""`spider.state` of a crawl, shared by its processes; the last write of a key wins.

What was deleted stays as a row without a value, so that other processes drop it too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.store.columns import columns

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from sqlalchemy import Connection

SAVE = text("""
    INSERT INTO spider_state (crawl_id, key, value, changed_at)
    SELECT :crawl, key, CAST(value AS json), clock_timestamp()
    FROM unnest(CAST(:keys AS text[]), CAST(:values AS text[])) AS changed(key, value)
    ON CONFLICT (crawl_id, key)
        DO UPDATE SET value = excluded.value, changed_at = excluded.changed_at
""")

# What changed since, and a minute before: who wrote then may have committed later.
CHANGED = text("""
    SELECT key, CAST(value AS text) AS value, changed_at FROM spider_state
    WHERE crawl_id = :crawl AND (CAST(:since AS timestamptz) IS NULL
        OR changed_at > CAST(:since AS timestamptz) - interval '1 minute')
""")


def save(connection: Connection, crawl_id: int, state: Mapping[str, str | None]) -> None:
    """Save changed keys of the state; None is a key that was deleted.

    The keys are sorted, so that two writers wait for each other and do not deadlock.
    """
    if state:
        given = columns(sorted(state.items()), keys=0, values=1)
        connection.execute(SAVE, {"crawl": crawl_id, **given})


def load(
    connection: Connection, crawl_id: int, since: datetime | None = None
) -> tuple[dict[str, str | None], datetime | None]:
    """Return the state that changed since, by key, and when it last did; None was deleted."""
    rows = connection.execute(CHANGED, {"crawl": crawl_id, "since": since}).all()
    state = {row.key: row.value for row in rows}
    return state, max((row.changed_at for row in rows), default=since)
