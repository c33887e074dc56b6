"""Outstanding work as people read it: in the order of its turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store.failures import PAGE
from scrapy_itemgraph.store.sql_conditions import IS_READY_ALONE, IS_READY_BESIDE_OTHERS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Row, TextClause

_IN_SLOT = "(CAST(:slot AS int) IS NULL OR q.slot_id = :slot)"
_IS_IN_SLOT = """(CAST(:slot AS int) IS NULL OR w.queue_id IN (
                        SELECT q.id FROM queues q
                        WHERE q.crawl_id = :crawl AND q.slot_id = :slot))"""
_IS_AFTER = "(w.is_stale, w.nice, w.seq) > (:is_stale, :nice, :seq)"


def _in_turn(of_task: str = "", of_item: str = "") -> TextClause:
    """Return the statement for work in the order in which it would be claimed.

    That is the order were all of it in one queue. Of work that is ready each (queue, kind) has an
    index in this order: the first of each are compared, and of those that are among the first all
    that goes before the last of them is read. What has a place up to the given one is left out. The
    conditions restrict `t`, a task, and `w`, work.
    """
    return text(f"""
        WITH wanted AS MATERIALIZED (
            SELECT t.id, t.name FROM tasks t
            WHERE t.crawl_id = :crawl AND (CAST(:task AS text) IS NULL OR t.name = :task){of_task}),
        heads AS MATERIALIZED (
            SELECT q.id AS queue_id, k.id AS kind_id, head.*
            FROM wanted t JOIN kinds k ON k.task_id = t.id JOIN queues q ON q.crawl_id = :crawl
                AND :ready AND {_IN_SLOT}
            CROSS JOIN LATERAL (
                SELECT w.is_stale, w.nice, w.seq FROM work w
                WHERE w.queue_id = q.id AND w.kind_id = k.id AND {IS_READY_BESIDE_OTHERS}{of_item}
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
                        AND {IS_READY_BESIDE_OTHERS}{of_item}
                        AND {_IS_AFTER}
                        AND (w.is_stale, w.nice, w.seq) <= (
                            coalesce((SELECT is_stale FROM last), true),
                            coalesce((SELECT nice FROM last), 2147483647),
                            coalesce((SELECT seq FROM last), 9223372036854775807))
                    ORDER BY w.is_stale, w.nice, w.seq
                    LIMIT :limit) AS w
                UNION ALL
                (SELECT w.* FROM work w
                    WHERE :ready AND w.crawl_id = :crawl AND {IS_READY_ALONE}{of_item}
                        AND w.task_id IN (SELECT id FROM wanted)
                        AND {_IS_AFTER} AND {_IS_IN_SLOT}
                    ORDER BY w.is_stale, w.nice, w.seq
                    LIMIT :limit)
                UNION ALL
                SELECT w.* FROM wanted t CROSS JOIN LATERAL (
                    SELECT w.* FROM (
                        SELECT w.* FROM work w
                        WHERE :delayed AND w.task_id = t.id AND w.not_before IS NOT NULL
                            AND w.token IS NULL{of_item} AND {_IS_AFTER}
                        ORDER BY w.is_stale, w.nice, w.seq
                        LIMIT CASE WHEN CAST(:slot AS int) IS NULL THEN :limit ELSE :most END) AS w
                    WHERE {_IS_IN_SLOT}
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


WORKLIST = _in_turn()
# Of items with a tag, where many have it: what is read and left out is work of its tasks alone.
OF_COMMON_TAG = _in_turn(
    """
                AND EXISTS (
                    SELECT FROM task_tags tt WHERE tt.task_id = t.id AND tt.tag_name = :tag)""",
    """
                AND EXISTS (
                    SELECT FROM tags g WHERE g.item_id = w.item_id AND g.tag_name = :tag)""",
)
# The same where few have it: from the tag to the work of its items.
OF_RARE_TAG = text(f"""
    SELECT i.name AS item, {PAGE}, t.name AS task, w.is_stale, w.nice, w.tries, w.deaths, w.stalls,
        w.not_before, s.name AS slot, w.seq
    FROM (SELECT g.item_id FROM tags g
        WHERE g.crawl_id = :crawl AND g.tag_name = :tag OFFSET 0) AS g
    JOIN work w ON w.item_id = g.item_id AND w.token IS NULL
        AND CASE WHEN w.not_before IS NULL THEN :ready ELSE :delayed END AND {_IS_AFTER}
    JOIN task_tags tt ON tt.task_id = w.task_id AND tt.tag_name = :tag
    JOIN tasks t ON t.id = w.task_id AND (CAST(:task AS text) IS NULL OR t.name = :task)
    JOIN items i ON i.id = w.item_id
    JOIN queues q ON q.id = w.queue_id AND {_IN_SLOT}
    JOIN limits s ON s.id = q.slot_id
    ORDER BY w.is_stale, w.nice, w.seq
    LIMIT :limit
""")  # noqa: S608 - our own columns
HAVE_TAG = text("""
    SELECT count(*) FROM (
        SELECT FROM tags WHERE crawl_id = :crawl AND tag_name = :tag LIMIT :many) AS counted
""")
RARE = 10_000  # items with a tag, at most


MOST_LOOKED_AT = 100_000  # of each task's delayed work, where only a slot's is asked for


class Place(NamedTuple):
    """Where work stands in the order of its turn."""

    is_stale: bool = False
    nice: int = -(2**31)
    seq: int = 0


FIRST = Place()  # before all work


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
    connection: Connection, crawl_id: int, *, task: str | None, limit: int, tag: str | None = None
) -> list[OutstandingWork]:
    """Return outstanding, unclaimed work; with `tag` that which the tag calls for."""
    found = in_turn(connection, crawl_id, task=task, tag=tag, limit=limit)
    return [OutstandingWork._make(row[:-1]) for row in found]


def in_turn(
    connection: Connection,
    crawl_id: int,
    *,
    task: str | None,
    tag: str | None,
    limit: int,
    after: Place = FIRST,
    slot_id: int | None = None,
    ready: bool = True,
    delayed: bool = True,
) -> Sequence[Row[Any]]:
    """Return rows of outstanding, unclaimed work behind a place, in the order of its turn.

    They have the columns of OutstandingWork, and `seq`. `ready` is what may run now, `delayed` what
    waits for a later time.
    """
    engine.hot_path(connection)
    statement = WORKLIST
    given: dict[str, Any] = {"crawl": crawl_id, "task": task, "limit": limit, "slot": slot_id}
    given |= {"ready": ready, "delayed": delayed, "most": MOST_LOOKED_AT, **after._asdict()}
    if tag is not None:
        many = {"crawl": crawl_id, "tag": tag, "many": RARE + 1}
        is_rare = connection.execute(HAVE_TAG, many).scalar_one() <= RARE
        statement = OF_RARE_TAG if is_rare else OF_COMMON_TAG
        given["tag"] = tag
        if is_rare:
            del given["most"]
    return connection.execute(statement, given).all()
