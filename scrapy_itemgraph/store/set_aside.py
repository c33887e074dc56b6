"""Pages that are set aside: their pairs are not outstanding, whatever their results say.

A hold is a column beside the result: failures, expiries and new runs leave it alone, and when it
goes the pair is again what its result says. An item is set aside with the tasks that its tags call
for at that moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.model.set_aside import Hold
from scrapy_itemgraph.store import failures, notify, queues
from scrapy_itemgraph.store.items import lock_items
from scrapy_itemgraph.store.sql_conditions import IS_HELD, IS_READY_ALONE, IS_READY_BESIDE_OTHERS
from scrapy_itemgraph.store.worklist import refresh

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

STEP = 1000  # items that are looked at in a transaction

# The pairs that items' tags call for; one that never ran gets its row. It is looked at by item
# (OFFSET 0): a planner might begin with all tags of the database.
HOLD = text("""
    INSERT INTO results (item_id, task_id, task_version, is_successful, created_at, run, hold)
    SELECT given.id, t.id, t.version, false, clock_timestamp(),
        (SELECT c.run FROM crawls c WHERE c.id = t.crawl_id), :hold
    FROM unnest(CAST(:items AS bigint[])) AS given(id)
    CROSS JOIN LATERAL (
        SELECT DISTINCT tt.task_id
        FROM tags g JOIN task_tags tt ON tt.crawl_id = g.crawl_id AND tt.tag_name = g.tag_name
        WHERE g.item_id = given.id OFFSET 0) AS called
    JOIN tasks t ON t.id = called.task_id AND t.is_registered
    ORDER BY given.id, t.id
    ON CONFLICT (item_id, task_id) DO UPDATE SET hold = excluded.hold
        WHERE results.hold IS DISTINCT FROM excluded.hold
    RETURNING item_id
""")

FREE = text("""
    UPDATE results SET hold = NULL
    WHERE ctid = ANY (ARRAY(
        SELECT held.ctid FROM unnest(CAST(:items AS bigint[])) AS given(id)
        CROSS JOIN LATERAL (
            SELECT r.ctid, r.hold FROM results r WHERE r.item_id = given.id OFFSET 0) AS held
        WHERE held.hold = :hold))
    RETURNING item_id
""")

# Items behind a given one: of a crawl, with a tag, or set aside; and which of them are meant.
_LOOKED = """
    SELECT found.id, (CAST(:part AS text) IS NULL
        OR (json_typeof(i.data->'url') = 'string' AND position(:part IN i.data->>'url') > 0)
        OR position(:part IN i.name) > 0) AS is_meant
    FROM ({found}) AS found JOIN items i ON i.id = found.id
    ORDER BY found.id
"""
_OF_CRAWL = """
        SELECT i.id FROM items i WHERE i.crawl_id = :crawl AND i.id > :after
        ORDER BY i.crawl_id, i.id LIMIT :limit"""
_OF_TAG = """
        SELECT g.item_id AS id FROM tags g
        WHERE g.crawl_id = :crawl AND g.tag_name = :tag AND g.item_id > :after
        ORDER BY g.crawl_id, g.tag_name, g.item_id LIMIT :limit"""
_SET_ASIDE = """
        SELECT DISTINCT r.item_id AS id
        FROM (SELECT t.id FROM tasks t WHERE t.crawl_id = :crawl OFFSET 0) AS t
        CROSS JOIN LATERAL (
            SELECT r.item_id FROM results r
            WHERE r.task_id = t.id AND r.hold = :hold AND r.item_id > :after
            ORDER BY r.task_id, r.hold, r.item_id LIMIT :limit) AS r
        ORDER BY id LIMIT :limit"""
LOOK_AT_CRAWL = text(_LOOKED.format(found=_OF_CRAWL))
LOOK_AT_TAG = text(_LOOKED.format(found=_OF_TAG))
LOOK_AT_SET_ASIDE = text(_LOOKED.format(found=_SET_ASIDE))


class Looked(NamedTuple):
    """Items that are meant, and the item to go on behind; None: there are no more."""

    items: list[int]
    next: int | None


def look(
    connection: Connection,
    crawl_id: int,
    *,
    part: str | None = None,
    tag: str | None = None,
    after: int = 0,
) -> Looked:
    """Return which of the next items of a crawl, or of those with a tag, have a part of a URL."""
    given = {"crawl": crawl_id, "part": part, "after": after, "limit": STEP}
    if tag is None:
        return _looked(connection.execute(LOOK_AT_CRAWL, given).all(), STEP)
    return _looked(connection.execute(LOOK_AT_TAG, {**given, "tag": tag}).all(), STEP)


def look_at_set_aside(
    connection: Connection,
    crawl_id: int,
    hold: Hold,
    *,
    part: str | None = None,
    after: int = 0,
    limit: int = STEP,
) -> Looked:
    """Return which of the next items that are set aside so have a part of a URL."""
    given = {"crawl": crawl_id, "hold": hold, "part": part, "after": after, "limit": limit}
    return _looked(connection.execute(LOOK_AT_SET_ASIDE, given).all(), limit)


def _looked(rows: Sequence[Any], limit: int) -> Looked:
    found = [row.id for row in rows if row.is_meant]
    return Looked(found, rows[-1].id if len(rows) == limit else None)


def hold(connection: Connection, items: Sequence[int], why: Hold) -> set[int]:
    """Set items aside, in the place of another hold; return those for which that changed something.

    What is claimed goes on to its end. The caller shares the crawl's lock.
    """
    locked = lock_items(connection, items)
    held = set(connection.execute(HOLD, {"items": locked, "hold": why}).scalars())
    refresh.refresh(connection, held)
    return held


def free(connection: Connection, items: Sequence[int], why: Hold) -> set[int]:
    """Let items be what their results say, that are set aside so; return these."""
    locked = lock_items(connection, items)
    freed = set(connection.execute(FREE, {"items": locked, "hold": why}).scalars())
    refresh.refresh(connection, freed)
    return freed


# Work that is ready, is tried again or is claimed, up to a number; each part has an index.
_IN_WORK = f"""
    SELECT count(*) FROM (
        (SELECT FROM queues q CROSS JOIN LATERAL (
            SELECT FROM work w
            WHERE w.queue_id = q.id AND {IS_READY_BESIDE_OTHERS} LIMIT {{most}}) AS ready
        WHERE q.crawl_id = :crawl LIMIT {{most}})
        UNION ALL
        (SELECT FROM work w WHERE w.crawl_id = :crawl AND {IS_READY_ALONE} LIMIT {{most}})
        UNION ALL
        (SELECT FROM work w
        WHERE w.crawl_id = :crawl AND w.not_before IS NOT NULL AND w.tries <> 0
            AND w.token IS NULL LIMIT {{most}})
        UNION ALL
        (SELECT FROM processes p CROSS JOIN LATERAL (
            SELECT FROM work w
            WHERE w.worker_id = p.id AND w.token IS NOT NULL LIMIT {{most}}) AS claimed
        WHERE p.crawl_id = :crawl AND p.stopped_at IS NULL LIMIT {{most}})
        LIMIT {{most}}) AS counted
"""  # noqa: S608 - our own conditions
IN_WORK = text(_IN_WORK.format(most=":most"))

# Whether pages of a crawl's stash become work by themselves.
HAS_STASH = """(SELECT c.dripfeed FROM crawls c WHERE c.id = :crawl) IS NOT NULL AND EXISTS (
            SELECT FROM tasks t CROSS JOIN LATERAL (
                SELECT FROM results r WHERE r.task_id = t.id AND r.hold = 'stashed' LIMIT 1) AS held
            WHERE t.crawl_id = :crawl)"""

_DRIPFEED = "SELECT dripfeed FROM crawls WHERE id = :crawl"
DRIPFEED = text(_DRIPFEED)

# Whether the dripfeed is to free something. Where what is in work cannot be claimed, since its task
# is disabled or its website blocked, nothing more comes of the stash, and no run waits for it.
DRIPS = f"""CASE WHEN ({_DRIPFEED}) IS NULL THEN false
            ELSE ({HAS_STASH}) AND
                ({_IN_WORK.format(most=f"(SELECT coalesce(({_DRIPFEED}), 0))")}) < ({_DRIPFEED})
            END"""

SET_DRIPFEED = text("UPDATE crawls SET dripfeed = :pages WHERE id = :crawl")


def set_dripfeed(connection: Connection, crawl_id: int, pages: int | None) -> None:
    """Say how many pages are kept in work, as far as the stash has some; None: no more of it."""
    connection.execute(SET_DRIPFEED, {"crawl": crawl_id, "pages": pages})
    notify.notify(connection, crawl_id)


def dripfeed(connection: Connection, crawl_id: int) -> int | None:
    """Return how many pages of its stash a crawl keeps in work; None: nobody said so."""
    pages: int | None = connection.execute(DRIPFEED, {"crawl": crawl_id}).scalar_one()
    return pages


def drip(connection: Connection, crawl_id: int, pages: int) -> bool:
    """Free the first pages of a crawl's stash, so that `pages` are outstanding; tell if it did."""
    given = {"crawl": crawl_id, "most": pages}
    lacking = pages - connection.execute(IN_WORK, given).scalar_one()
    if lacking <= 0:
        return False
    found = look_at_set_aside(connection, crawl_id, Hold.STASHED, limit=min(lacking, STEP))
    return bool(found.items and free(connection, found.items, Hold.STASHED))


# Pairs of an item that are held by a failure or refusal, or were given up.
HELD_PAIRS = text(f"""
    SELECT r.item_id, r.task_id FROM results r
    WHERE r.item_id = :item AND {IS_HELD} AND (CAST(:task AS int) IS NULL OR r.task_id = :task)
    ORDER BY r.task_id
""")  # noqa: S608 - our own condition

# What has to wait for its next attempt need not any more.
SET_TRIES = text("""
    UPDATE work w SET tries = - CAST(:attempts AS int),
        not_before = CASE WHEN w.tries > 0 AND w.token IS NULL THEN NULL ELSE w.not_before END
    FROM tasks t
    WHERE w.item_id = :item AND t.id = w.task_id
        AND (CAST(:task AS int) IS NULL OR w.task_id = :task)
    RETURNING t.name, w.queue_id
""")


def give_attempts(
    connection: Connection, item_id: int, attempts: int, *, task_id: int | None, by: str
) -> list[str]:
    """Give an item's pairs so many attempts from now on; return the names of their tasks.

    Open failures of these are handled. What is set aside, fresh or blocked gets none.
    """
    locked = lock_items(connection, [item_id])
    here = {"item": item_id, "task": task_id}
    held = [(row.item_id, row.task_id) for row in connection.execute(HELD_PAIRS, here)]
    failures.unhold(connection, held)
    failures.supersede(connection, held, by=by)
    refresh.refresh(connection, locked)
    rows = connection.execute(SET_TRIES, {**here, "attempts": attempts}).all()
    queues.wake(connection, {row.queue_id for row in rows})
    return sorted(row.name for row in rows)
