"""URLs that are deleted: those of a queue, of a crawl's frontier, or those from before a moment.

The items go with their names, tags, results, attempts and depths, and with their work unless a
worker has claimed it: its commit finds the item gone. Of many a step is deleted in a transaction:
their queues are marked before, take nothing from then on, and go at last. Any server can go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.model import frontier
from scrapy_itemgraph.store import notify
from scrapy_itemgraph.store.columns import typed
from scrapy_itemgraph.store.depths import links
from scrapy_itemgraph.store.frontier.lookup import IS_WITHIN, Cursor, Scope
from scrapy_itemgraph.store.items import DROP_NAMES
from scrapy_itemgraph.store.registry import crawls
from scrapy_itemgraph.store.sql_conditions import IS_DEAD
from scrapy_itemgraph.store.urls import completions
from scrapy_itemgraph.store.worklist import refresh

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sqlalchemy import Connection

    from scrapy_itemgraph.store.registry.crawls import SharedCrawl

STEP = 1000  # URLs that are deleted by one statement, or looked at
LAST_QUEUE = 2**31 - 1
AT_ONCE = 10_000  # URLs that are deleted in one transaction

# URLs behind a place, up to another, and whether they were made before a second; null: any are.
URLS = text(f"""
    SELECT i.id AS item_id, i.slot_id,
        coalesce(i.created_at < to_timestamp(CAST(:before AS bigint)), true) AS is_meant
    FROM items i
    WHERE i.crawl_id = :crawl AND i.in_frontier AND {IS_WITHIN}
    ORDER BY i.crawl_id, i.slot_id, i.id LIMIT :limit
""")  # noqa: S608 - our own condition

# Names are locked in the order in which all take them.
NAMES = text("""
    SELECT a.key FROM unnest(CAST(:items AS bigint[])) AS gone(id)
    CROSS JOIN LATERAL (
        SELECT key FROM aliases WHERE aliases.item_id = gone.id OFFSET 0) AS a
""")

LOCK_NAMES = text("""
    SELECT a.key FROM unnest(CAST(:keys AS uuid[])) AS wanted(key)
    JOIN aliases a ON a.crawl_id = :crawl AND a.key = wanted.key
    WHERE a.item_id = ANY (CAST(:items AS bigint[]))
    FOR UPDATE OF a
""")

# Those that are still URLs of a frontier.
LOCK_ITEMS = text("""
    SELECT i.id FROM unnest(CAST(:items AS bigint[])) AS wanted(id)
    JOIN items i ON i.id = wanted.id
    WHERE i.in_frontier
    FOR UPDATE OF i
""")

# Unclaimed work. It is deleted by a statement of its own, which sees what was handed out while this
# one waited.
WORK = text("""
    SELECT w.item_id, w.task_id FROM unnest(CAST(:items AS bigint[])) AS gone(id)
    JOIN work w ON w.item_id = gone.id
    WHERE w.token IS NULL
    FOR UPDATE OF w
""")

DROP_ATTEMPTS = text("""
    DELETE FROM attempts a USING unnest(CAST(:items AS bigint[])) AS gone(id)
    WHERE a.item_id = gone.id
""")

DELETE_ITEMS = text("""
    DELETE FROM items i USING unnest(CAST(:items AS bigint[])) AS gone(id) WHERE i.id = gone.id
""")

COUNT_FREED = text("UPDATE crawls SET names_freed = names_freed + 1 WHERE id = :crawl")

MARK = text("""
    UPDATE frontier_queues SET is_deleting = true, deleted_by = :process
    WHERE crawl_id = :crawl AND queue_id BETWEEN :first AND :last
""")

# What their turn waited for goes with them: a queue that is made again is new.
DROP_QUEUES = text("""
    WITH gone AS (
        DELETE FROM frontier_queues
        WHERE crawl_id = :crawl AND queue_id BETWEEN :first AND :last
        RETURNING queue_id)
    UPDATE queues q SET next_at = clock_timestamp() FROM gone
    WHERE q.id = gone.queue_id AND q.next_at > (SELECT clock_timestamp())
""")

# Queues that nobody deletes any more: their server is gone, or it is this one, which gave up.
TAKE_OVER = text(f"""
    UPDATE frontier_queues f SET deleted_by = :process
    FROM (
        SELECT f.queue_id, t.id AS task_id, q.slot_id FROM frontier_queues f
        JOIN queues q ON q.id = f.queue_id
        LEFT JOIN tasks t ON t.crawl_id = f.crawl_id AND t.name = :task
        WHERE f.is_deleting AND f.crawl_id <> ALL (CAST(:busy AS int[]))
            AND NOT EXISTS (
                SELECT FROM processes p
                WHERE p.id = f.deleted_by AND p.id <> :process AND NOT {IS_DEAD})
        ORDER BY f.crawl_id, f.queue_id LIMIT :limit
        FOR NO KEY UPDATE OF f SKIP LOCKED) AS left_over
    WHERE f.queue_id = left_over.queue_id
    RETURNING f.crawl_id, left_over.task_id, f.queue_id, left_over.slot_id
""")  # noqa: S608 - our own condition

BEFORE = text("""
    SELECT CAST(floor(extract(epoch FROM clock_timestamp())) AS bigint) - CAST(:seconds AS bigint)
""")


class Step(NamedTuple):
    """How many URLs a step deleted, and where the next one begins; None: there are no more."""

    deleted: int
    next: Cursor | None


class Begun(NamedTuple):
    """How many URLs are deleted, and whether that is all."""

    deleted: int
    is_done: bool


def delete_few(connection: Connection, scope: Scope, process_id: int) -> Begun:
    """Delete a queue, or all of a crawl, where it has few URLs; else mark it as being deleted.

    It is marked as deleted by a process, and others leave it to that one while it lives.

    No URL is put into the crawl meanwhile.
    """
    crawls.own_crawl(connection, scope.crawl_id)
    crawl = crawls.share_crawl(connection, scope.crawl_id)
    most = {**scope.span(scope.start), "before": None, "limit": AT_ONCE + 1}
    first, last = (0, LAST_QUEUE) if scope.queue_id is None else (scope.queue_id, scope.queue_id)
    which = {"crawl": scope.crawl_id, "first": first, "last": last}
    found = [row.item_id for row in connection.execute(URLS, most)]
    if len(found) > AT_ONCE:
        connection.execute(MARK, {**which, "process": process_id})
        return Begun(0, is_done=False)
    deleted = sum(
        _delete(connection, crawl, scope, found[place : place + STEP])
        for place in range(0, len(found), STEP)
    )
    connection.execute(DROP_QUEUES, which)
    if deleted:
        _tell_freed(connection, scope.crawl_id)
    return Begun(deleted, is_done=True)


def delete_step(
    connection: Connection, scope: Scope, after: Cursor, before: int | None = None
) -> Step:
    """Delete URLs of the next thousand behind a place: those made `before` a second, or all."""
    crawl = crawls.share_crawl(connection, scope.crawl_id)
    given = {**scope.span(after), "before": before, "limit": STEP}
    rows = connection.execute(URLS, given).all()
    deleted = _delete(connection, crawl, scope, [row.item_id for row in rows if row.is_meant])
    if deleted:
        _tell_freed(connection, scope.crawl_id)
    place = Cursor(rows[-1].slot_id, rows[-1].item_id) if len(rows) == STEP else None
    return Step(deleted, place)


def take_over(connection: Connection, process_id: int, busy: Collection[int]) -> list[Scope]:
    """Return marked queues that nobody deletes, which this process deletes from now on.

    `busy` are the crawls in which it deletes already.
    """
    given = {"process": process_id, "busy": list(busy), "task": frontier.TASK, "limit": STEP}
    return typed(connection.execute(TAKE_OVER, given), Scope)


def second_before(connection: Connection, seconds: int) -> int:
    """Return which second was so many seconds ago."""
    second: int = connection.execute(BEFORE, {"seconds": seconds}).scalar_one()
    return second


def _delete(connection: Connection, crawl: SharedCrawl, scope: Scope, wanted: Sequence[int]) -> int:
    """Delete items that are still URLs of a frontier; return how many."""
    if not wanted:
        return 0
    numbers = sorted(wanted)
    keys = sorted(connection.execute(NAMES, {"items": numbers}).scalars())
    named = {"crawl": scope.crawl_id, "keys": keys, "items": numbers}
    connection.execute(LOCK_NAMES, named).all()
    gone = {"items": list(connection.execute(LOCK_ITEMS, {"items": numbers}).scalars())}
    counted = completions.of_items(connection, gone["items"], scope.task_id)
    names = sorted(connection.execute(NAMES, gone).scalars())
    connection.execute(DROP_NAMES, {"crawl": scope.crawl_id, "keys": names})
    work = connection.execute(WORK, gone)
    refresh.withdraw(connection, [(row.item_id, row.task_id) for row in work])
    connection.execute(DROP_ATTEMPTS, gone)
    if crawl.tracks_depth:
        links.record(connection, scope.crawl_id, links.Found(gone=set(gone["items"])))
    connection.execute(DELETE_ITEMS, gone)
    completions.add(connection, {queue: -number for queue, number in counted.items()})
    return len(gone["items"])


def _tell_freed(connection: Connection, crawl_id: int) -> None:
    """Tell the crawl's workers that names which they know as taken are free again."""
    connection.execute(COUNT_FREED, {"crawl": crawl_id})
    notify.notify(connection, crawl_id)
