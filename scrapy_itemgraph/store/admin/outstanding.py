"""Outstanding work as people read it: in the order of its turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store.columns import typed
from scrapy_itemgraph.store.failures import PAGE
from scrapy_itemgraph.store.sql_conditions import IS_READY_ALONE, IS_READY_BESIDE_OTHERS

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

# Outstanding work in the order in which it would be claimed, were all of it in one queue. Of work
# that is ready each (queue, kind) has an index in this order: the first of each are compared, and
# of those that are among the first all that goes before the last of them is read.
WORKLIST = text(f"""
    WITH wanted AS MATERIALIZED (
        SELECT t.id, t.name FROM tasks t
        WHERE t.crawl_id = :crawl AND (CAST(:task AS text) IS NULL OR t.name = :task)),
    heads AS MATERIALIZED (
        SELECT q.id AS queue_id, k.id AS kind_id, head.*
        FROM wanted t JOIN kinds k ON k.task_id = t.id JOIN queues q ON q.crawl_id = :crawl
        CROSS JOIN LATERAL (
            SELECT w.is_stale, w.nice, w.seq FROM work w
            WHERE w.queue_id = q.id AND w.kind_id = k.id AND {IS_READY_BESIDE_OTHERS}
            ORDER BY w.is_stale, w.nice, w.seq
            LIMIT 1) AS head
        ORDER BY head.is_stale, head.nice, head.seq
        LIMIT :limit),
    last AS MATERIALIZED (
        SELECT is_stale, nice, seq FROM heads ORDER BY is_stale, nice, seq OFFSET :limit - 1)
    SELECT i.name AS item, {PAGE}, w.task, w.is_stale, w.nice, w.tries, w.deaths, w.stalls,
        w.not_before,
        s.name AS slot
    FROM (
        SELECT w.*, t.name AS task FROM (
            SELECT w.* FROM heads CROSS JOIN LATERAL (
                SELECT w.* FROM work w
                WHERE w.queue_id = heads.queue_id AND w.kind_id = heads.kind_id
                    AND {IS_READY_BESIDE_OTHERS}
                    AND (w.is_stale, w.nice, w.seq) <= (
                        coalesce((SELECT is_stale FROM last), true),
                        coalesce((SELECT nice FROM last), 2147483647),
                        coalesce((SELECT seq FROM last), 9223372036854775807))
                ORDER BY w.is_stale, w.nice, w.seq
                LIMIT :limit) AS w
            UNION ALL
            (SELECT w.* FROM work w
                WHERE w.crawl_id = :crawl AND {IS_READY_ALONE}
                    AND w.task_id IN (SELECT id FROM wanted)
                ORDER BY w.is_stale, w.nice, w.seq
                LIMIT :limit)
            UNION ALL
            SELECT w.* FROM wanted t CROSS JOIN LATERAL (
                SELECT w.* FROM work w
                WHERE w.task_id = t.id AND w.not_before IS NOT NULL AND w.token IS NULL
                ORDER BY w.is_stale, w.nice, w.seq
                LIMIT :limit) AS w) AS w
        JOIN wanted t ON t.id = w.task_id
        ORDER BY w.is_stale, w.nice, w.seq
        LIMIT :limit) w
    JOIN items i ON i.id = w.item_id
    JOIN queues q ON q.id = w.queue_id
    JOIN limits s ON s.id = q.slot_id
    ORDER BY w.is_stale, w.nice, w.seq
""")  # noqa: S608 - our own columns


class OutstandingWork(NamedTuple):
    """Work that nobody has claimed."""

    item: str
    url: str | None
    method: str | None
    task: str
    is_stale: bool
    nice: int
    tries: int
    deaths: int
    stalls: int
    not_before: datetime | None
    slot: str


def worklist(
    connection: Connection, crawl_id: int, *, task: str | None, limit: int
) -> list[OutstandingWork]:
    """Return outstanding, unclaimed work."""
    engine.hot_path(connection)
    given = {"crawl": crawl_id, "task": task, "limit": limit}
    return typed(connection.execute(WORKLIST, given), OutstandingWork)
