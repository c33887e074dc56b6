"""Outstanding work as people read it: in the order of its turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store.failures import PAGE
from scrapy_itemgraph.store.sql_conditions import IS_READY_ALONE, IS_READY_BESIDE_OTHERS

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

_IN_SLOT = "(CAST(:slot AS int) IS NULL OR q.slot_id = :slot)"
_IS_IN_SLOT = """(CAST(:slot AS int) IS NULL OR w.queue_id IN (
                        SELECT q.id FROM queues q
                        WHERE q.crawl_id = :crawl AND q.slot_id = :slot))"""
_IS_AFTER = "(w.is_stale, w.nice, w.seq) > (:is_stale, :nice, :seq)"

# Outstanding work in the order in which it would be claimed, were all of it in one queue. Of work
# that is ready each (queue, kind) has an index in this order: the first of each are compared, and
# of those that are among the first all that goes before the last of them is read. What has a place
# up to the given one is left out.
WORKLIST = text(f"""
    WITH wanted AS MATERIALIZED (
        SELECT t.id, t.name FROM tasks t
        WHERE t.crawl_id = :crawl AND (CAST(:task AS text) IS NULL OR t.name = :task)),
    heads AS MATERIALIZED (
        SELECT q.id AS queue_id, k.id AS kind_id, head.*
        FROM wanted t JOIN kinds k ON k.task_id = t.id JOIN queues q ON q.crawl_id = :crawl
            AND :ready AND {_IN_SLOT}
        CROSS JOIN LATERAL (
            SELECT w.is_stale, w.nice, w.seq FROM work w
            WHERE w.queue_id = q.id AND w.kind_id = k.id AND {IS_READY_BESIDE_OTHERS}
                AND {_IS_AFTER}
            ORDER BY w.is_stale, w.nice, w.seq
            LIMIT 1) AS head
        ORDER BY head.is_stale, head.nice, head.seq
        LIMIT :limit),
    last AS MATERIALIZED (
        SELECT is_stale, nice, seq FROM heads ORDER BY is_stale, nice, seq OFFSET :limit - 1)
    SELECT i.name AS item, {PAGE}, w.task, w.is_stale, w.nice, w.tries, w.deaths, w.stalls,
        w.not_before,
        s.name AS slot, w.seq
    FROM (
        SELECT w.*, t.name AS task FROM (
            SELECT w.* FROM heads CROSS JOIN LATERAL (
                SELECT w.* FROM work w
                WHERE w.queue_id = heads.queue_id AND w.kind_id = heads.kind_id
                    AND {IS_READY_BESIDE_OTHERS}
                    AND {_IS_AFTER}
                    AND (w.is_stale, w.nice, w.seq) <= (
                        coalesce((SELECT is_stale FROM last), true),
                        coalesce((SELECT nice FROM last), 2147483647),
                        coalesce((SELECT seq FROM last), 9223372036854775807))
                ORDER BY w.is_stale, w.nice, w.seq
                LIMIT :limit) AS w
            UNION ALL
            (SELECT w.* FROM work w
                WHERE :ready AND w.crawl_id = :crawl AND {IS_READY_ALONE}
                    AND w.task_id IN (SELECT id FROM wanted)
                    AND {_IS_AFTER} AND {_IS_IN_SLOT}
                ORDER BY w.is_stale, w.nice, w.seq
                LIMIT :limit)
            UNION ALL
            SELECT w.* FROM wanted t CROSS JOIN LATERAL (
                SELECT w.* FROM work w
                WHERE :delayed AND w.task_id = t.id AND w.not_before IS NOT NULL
                    AND w.token IS NULL AND {_IS_AFTER} AND {_IS_IN_SLOT}
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


FROM_THE_FIRST = {
    "ready": True,
    "delayed": True,
    "is_stale": False,
    "nice": -(2**31),
    "seq": 0,
}


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
    given = {"crawl": crawl_id, "task": task, "limit": limit, "slot": None, **FROM_THE_FIRST}
    return [OutstandingWork(*found) for *found, _ in connection.execute(WORKLIST, given)]
