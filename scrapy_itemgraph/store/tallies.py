"""Tallies: what workers did, added up by the minute, by the clock of the database.

Workers share these rows, so they are written last in a transaction, and in their order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.store import lost_commit_answers
from scrapy_itemgraph.store.columns import columns

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from scrapy_itemgraph.model.tallies import Tallies

LARGEST = 2**62  # what can still be added to; a row may hold more

ADD_OF_TASKS = text(f"""
    INSERT INTO task_minutes AS m
        (crawl_id, minute, task_id, done, retried, failed, refused, items, seconds)
    SELECT :crawl, date_trunc('minute', clock_timestamp()), task_id,
        done, retried, failed, refused, items, seconds
    FROM unnest(CAST(:tasks AS int[]), CAST(:done AS bigint[]), CAST(:retried AS bigint[]),
        CAST(:failed AS bigint[]), CAST(:refused AS bigint[]), CAST(:items AS bigint[]),
        CAST(:seconds AS float8[]))
        AS told(task_id, done, retried, failed, refused, items, seconds)
    ORDER BY task_id
    ON CONFLICT (crawl_id, minute, task_id) DO UPDATE SET
        done = least(m.done, {LARGEST}) + excluded.done,
        retried = least(m.retried, {LARGEST}) + excluded.retried,
        failed = least(m.failed, {LARGEST}) + excluded.failed,
        refused = least(m.refused, {LARGEST}) + excluded.refused,
        items = least(m.items, {LARGEST}) + excluded.items, seconds = m.seconds + excluded.seconds
""")  # noqa: S608 - our own number

ADD_OF_LIMITS = text(f"""
    INSERT INTO limit_minutes AS m (limit_id, minute, requests)
    SELECT l.id, date_trunc('minute', clock_timestamp()), told.requests
    FROM unnest(CAST(:kinds AS text[]), CAST(:names AS text[]), CAST(:requests AS bigint[]))
        AS told(kind, name, requests)
    JOIN limits l ON l.kind = told.kind AND l.name = told.name
    ORDER BY l.id
    ON CONFLICT (limit_id, minute) DO UPDATE SET
        requests = least(m.requests, {LARGEST}) + excluded.requests
""")  # noqa: S608 - our own number


def add(connection: Connection, crawl_id: int, told: Tallies) -> bool:
    """Add what a worker did to this minute's numbers, once; limits not known are left out.

    Return False if it was added before, or there is nothing to add.
    """
    if not told or not lost_commit_answers.take(connection, told.token):
        return False
    if told.of_tasks:
        names = ("done", "retried", "failed", "refused", "items", "seconds")
        given = columns(list(told.of_tasks.values()), **{name: name for name in names})
        connection.execute(ADD_OF_TASKS, {"crawl": crawl_id, "tasks": list(told.of_tasks), **given})
    if told.starts:
        connection.execute(
            ADD_OF_LIMITS,
            {
                "kinds": [kind for kind, _ in told.starts],
                "names": [name for _, name in told.starts],
                "requests": list(told.starts.values()),
            },
        )
    return True
