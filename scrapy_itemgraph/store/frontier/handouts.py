"""URLs that crawlers get: the first of each queue whose turn it is, held for a while.

A hold is work that is put off, not a claim: it outlives every process and ends by itself. A row of
`frontier_queues` is locked by who looks into the queue, so nobody else does at the time.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.model import frontier
from scrapy_itemgraph.model.frontier import HandedURL
from scrapy_itemgraph.store import queues
from scrapy_itemgraph.store.columns import columns, typed
from scrapy_itemgraph.store.sql_conditions import IS_READY_BESIDE_OTHERS, IS_STOPPED
from scrapy_itemgraph.store.worklist import timers
from scrapy_itemgraph.store.worklist.admission import WorkRow

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from scrapy_itemgraph.model.frontier import Request

CHUNK = 1000  # URLs, or queues, of a transaction
_LOOK_AGAIN = 1  # seconds after which one is of which as much is held as was asked for
_SOON = 5  # seconds after which a queue is looked into again that is shut, by its limit say

# Servers that hand nothing out are paused by themselves, or with all others.
STATE = text("""
    SELECT f.is_active AND NOT EXISTS (
        SELECT FROM frontier_nodes n WHERE n.process_id = :own AND NOT n.is_active)
    FROM frontier f
""")

# Crawls that have a queue, those first whose turn has waited longest. Who asks for any crawl is not
# sent to those in which it is no queue's turn, and no hold or date has come since they were staged.
CRAWLS = text("""
    SELECT c.id, c.name FROM crawls c
    LEFT JOIN LATERAL (
        SELECT q.next_at FROM queues q
        WHERE q.crawl_id = c.id AND q.is_live AND q.holder IS NULL
        ORDER BY q.next_at LIMIT 1) AS first ON true
    WHERE EXISTS (SELECT FROM frontier_queues f WHERE f.crawl_id = c.id)
        AND CASE WHEN CAST(:crawl AS text) IS NOT NULL THEN c.name = :crawl
            ELSE first.next_at <= (SELECT clock_timestamp()) OR EXISTS (
                SELECT FROM work w
                WHERE w.crawl_id = c.id AND w.not_before <= (SELECT clock_timestamp())
                LIMIT 1) END
    ORDER BY first.next_at
""")

NOW = text("SELECT clock_timestamp()")

FIND_SLOT = text("SELECT l.id FROM limits l WHERE l.kind = 'slot' AND l.name = :key")

KINDS = text(f"""
    SELECT k.id FROM tasks t JOIN kinds k ON k.task_id = t.id
    WHERE t.crawl_id = :crawl AND t.name = :task AND t.is_enabled AND t.is_registered
        AND (t.max_failures IS NULL OR NOT {IS_STOPPED})
""")  # noqa: S608 - our own condition

_TURN = """
    SELECT q.id, q.slot_id, l.name AS key, coalesce(f.delay, d.default_delay) AS delay,
        f.last_served, f.is_deleting, coalesce(f.completed >= f.crawl_limit, false) AS is_full,
        f.blocked_until, coalesce(l.blocked_until > clock_timestamp(), false) AS is_slot_blocked,
        CAST(floor(extract(epoch FROM clock_timestamp())) AS bigint) AS now
    FROM queues q
    JOIN frontier_queues f ON f.queue_id = q.id
    JOIN limits l ON l.id = q.slot_id
    CROSS JOIN frontier d
    WHERE {which}
    FOR NO KEY UPDATE OF f SKIP LOCKED
"""
TURNS = text(
    _TURN.format(
        which="""q.crawl_id = :crawl AND q.is_live AND q.holder IS NULL AND q.next_at <= :began
    ORDER BY q.next_at LIMIT :limit"""
    )
)
# The turn of one queue, whose `next_at` is a hint for who looks for any.
TURN = text(_TURN.format(which="q.crawl_id = :crawl AND q.slot_id = :slot AND q.holder IS NULL"))
# Queues that the chunk before was too small for.
CUT = text(_TURN.format(which="q.id = ANY (CAST(:queues AS int[])) AND NOT f.is_deleting"))

# The first work of each (queue, kind) that is a URL's, locked; what else a spider's `fetch` does is
# its own.
HEADS = text(f"""
    SELECT w.item_id, w.task_id, w.queue_id, w.kind_id, w.is_stale, w.nice, w.seq, w.tries,
        w.is_suspect
    FROM unnest(CAST(:queues AS int[]), CAST(:shares AS int[])) AS turn(queue_id, share)
    CROSS JOIN unnest(CAST(:kinds AS int[])) AS open(kind_id)
    CROSS JOIN LATERAL (
        SELECT * FROM work w
        WHERE w.queue_id = turn.queue_id AND w.kind_id = open.kind_id
            AND {IS_READY_BESIDE_OTHERS}
            AND EXISTS (SELECT FROM items i WHERE i.id = w.item_id AND i.in_frontier OFFSET 0)
        ORDER BY w.is_stale, w.nice, w.seq
        LIMIT turn.share
        FOR UPDATE OF w SKIP LOCKED) AS w
""")  # noqa: S608 - our own conditions

HELD = text("""
    SELECT queue.id, (
        SELECT count(*) FROM (
            SELECT FROM work w
            WHERE w.queue_id = queue.id AND w.not_before > (SELECT clock_timestamp())
                AND w.tries > 0 AND w.kind_id = ANY (CAST(:kinds AS int[]))
            LIMIT :most) AS held) AS number
    FROM unnest(CAST(:queues AS int[])) AS queue(id)
""")

# Queues that have something to hand out.
READY = text(f"""
    SELECT queue.id FROM unnest(CAST(:queues AS int[])) AS queue(id)
    WHERE EXISTS (
        SELECT FROM unnest(CAST(:kinds AS int[])) AS open(kind_id)
        CROSS JOIN LATERAL (
            SELECT FROM work w
            WHERE w.queue_id = queue.id AND w.kind_id = open.kind_id AND {IS_READY_BESIDE_OTHERS}
            LIMIT 1) AS first
        OFFSET 0)
""")  # noqa: S608 - our own condition

HOLD = text("""
    UPDATE work w SET not_before = to_timestamp(:until), tries = 1
    FROM unnest(CAST(:items AS bigint[]), CAST(:tasks AS int[])) AS handed(item_id, task_id)
    WHERE w.item_id = handed.item_id AND w.task_id = handed.task_id
""")

URLS = text("""
    SELECT i.id, i.name, i.data FROM unnest(CAST(:items AS bigint[])) AS wanted(id)
    JOIN items i ON i.id = wanted.id
""")

SERVED = text("""
    UPDATE frontier_queues f SET last_served = :now
    FROM unnest(CAST(:queues AS int[])) AS served(id) WHERE f.queue_id = served.id
""")

# So that crawls of spiders keep their distance, too.
USED = text("""
    UPDATE limits l SET last_at = clock_timestamp()
    WHERE l.ctid = ANY (ARRAY(
        SELECT x.ctid FROM unnest(CAST(:slots AS int[])) AS used(id)
        JOIN limits x ON x.id = used.id
        FOR NO KEY UPDATE OF x SKIP LOCKED))
""")

# One that a commit wakes just now is left to it.
NEXT_TURNS = text("""
    UPDATE queues q SET next_at = greatest(clock_timestamp(), to_timestamp(turn.second))
    FROM (
        SELECT q.id, turn.second
        FROM unnest(CAST(:queues AS int[]), CAST(:seconds AS bigint[])) AS turn(id, second)
        JOIN queues q ON q.id = turn.id
        FOR NO KEY UPDATE OF q SKIP LOCKED) AS turn
    WHERE q.id = turn.id
""")

# Holds of URLs that were not sent.
GIVE_BACK = text("""
    UPDATE work w SET not_before = NULL, tries = 0
    FROM unnest(CAST(:items AS bigint[]), CAST(:tasks AS int[])) AS back(item_id, task_id)
    WHERE w.item_id = back.item_id AND w.task_id = back.task_id AND w.token IS NULL
        AND w.tries = 1 AND w.not_before IS NOT NULL
    RETURNING w.queue_id
""")


class Turn(NamedTuple):
    """A queue that is locked, and what says whether something of it may be handed out.

    Moments are seconds since 1970. One that `is_full` has as many completed URLs as its limit.
    """

    id: int
    slot_id: int
    key: str
    delay: int
    last_served: int
    is_deleting: bool
    is_full: bool
    blocked_until: int
    is_slot_blocked: bool
    now: int

    @property
    def opens_at(self) -> int:
        """From which second on it may be handed out of; 0: now."""
        least = max(self.blocked_until, self.last_served + self.delay)
        if least >= self.now:
            return min(least + 1, frontier.LAST_SECOND)
        is_shut = self.is_full or self.is_deleting or self.is_slot_blocked
        return self.now + _SOON if is_shut else 0


class Crawl(NamedTuple):
    """A crawl with a frontier."""

    id: int
    name: str


class Chunk(NamedTuple):
    """URLs that are held from now on, and of how many queues that were not handed out before.

    `cut` are queues that may have more than there was room for, and how much more of each is asked
    for. The last chunk of a crawl `is_last`.
    """

    urls: list[HandedURL]
    queues: int = 0
    cut: Mapping[int, int] = {}
    is_last: bool = True


def crawls_of(connection: Connection, request: Request, own: int) -> list[Crawl]:
    """Return which crawls a request is for: none while this server, `own`, hands nothing out."""
    if not connection.execute(STATE, {"own": own}).scalar_one():
        return []
    return typed(connection.execute(CRAWLS, {"crawl": request.crawl}), Crawl)


def stage(connection: Connection, crawl_id: int) -> datetime:
    """Let URLs be handed out whose date has come, or whose hold is over; return when that was.

    Queues whose turn comes later than that were looked into since.
    """
    timers.stage_timers(connection, crawl_id, CHUNK)
    moment: datetime = connection.execute(NOW).scalar_one()
    return moment


def take(
    connection: Connection,
    crawl: Crawl,
    request: Request,
    *,
    began: datetime,
    room: int,
    looked_at: int,
    cut: Mapping[int, int],
) -> Chunk:
    """Hold URLs of a crawl's queues, `room` of them at most, or of those that were cut.

    So many are `looked_at`, for of some nothing may be handed out now.
    """
    given = {"crawl": crawl.id, "task": frontier.TASK}
    kinds = list(connection.execute(KINDS, given).scalars())
    if not kinds:
        return Chunk([])
    most = request.urls_per_queue or frontier.MAX_SECONDS
    empty: list[Turn] = []
    if cut:
        turns = looked_into = _turns(connection, CUT, queues=list(cut))
        allowed = {one.id: cut[one.id] for one in turns}
        is_last = False
    else:
        limit = min(max(room, looked_at), CHUNK)
        found = _looked_for(connection, crawl, request, began, limit)
        opened = _open(connection, found, request.urls_per_queue, kinds)
        if len(opened) > room:
            opened, empty = _ready(connection, opened, kinds)
        looked_into, waiting = opened[:room], {one.id for one in opened[room:]}
        turns = [one for one in found if one.id not in waiting]
        allowed = {one.id: most for one in looked_into}
        is_last = request.key is not None or (len(found) < limit and not waiting)
    share = max(1, CHUNK // max(1, len(looked_into)))
    shares = {queue: min(share, left) for queue, left in allowed.items()}
    rows = _heads(connection, shares, kinds)
    taken = Counter(row.queue_id for row in rows)
    urls = _held(connection, crawl, rows, looked_into, request.hold)
    _move_on(connection, crawl.id, turns, [*looked_into, *empty], taken)
    left = {
        queue: allowed[queue] - count
        for queue, count in taken.items()
        if count == shares[queue] < allowed[queue]
    }
    return Chunk(urls, 0 if cut else len(taken), left, is_last and not left)


def _turns(connection: Connection, statement: Any, **given: Any) -> list[Turn]:
    return typed(connection.execute(statement, given), Turn)


def _looked_for(
    connection: Connection, crawl: Crawl, request: Request, began: datetime, limit: int
) -> list[Turn]:
    if request.key is None:
        return _turns(connection, TURNS, crawl=crawl.id, began=began, limit=limit)
    slot = connection.execute(FIND_SLOT, {"key": request.key}).scalar()
    return [] if slot is None else _turns(connection, TURN, crawl=crawl.id, slot=slot)


def _open(
    connection: Connection, turns: Sequence[Turn], most: int, kinds: Sequence[int]
) -> list[Turn]:
    """Return the queues that something may be handed out of, fewer than `most` of it held."""
    found = [one for one in turns if not one.opens_at]
    if not most or not found:
        return found
    asked = {"queues": [one.id for one in found], "kinds": list(kinds), "most": most}
    held = {row.id: row.number for row in connection.execute(HELD, asked)}
    return [one for one in found if held[one.id] < most]


def _ready(
    connection: Connection, turns: Sequence[Turn], kinds: Sequence[int]
) -> tuple[list[Turn], list[Turn]]:
    """Return the queues that have something to hand out, and those that have nothing."""
    asked = {"queues": [one.id for one in turns], "kinds": list(kinds)}
    ready = set(connection.execute(READY, asked).scalars())
    return (
        [one for one in turns if one.id in ready],
        [one for one in turns if one.id not in ready],
    )


def _heads(
    connection: Connection, shares: Mapping[int, int], kinds: Sequence[int]
) -> list[WorkRow]:
    if not shares:
        return []
    asked = {"queues": list(shares), "shares": list(shares.values()), "kinds": list(kinds)}
    rows = typed(connection.execute(HEADS, asked), WorkRow)
    rows.sort(key=lambda row: (row.is_stale, row.nice, row.seq))
    if len(kinds) == 1:
        return rows
    taken: dict[int, int] = dict.fromkeys(shares, 0)
    first: list[WorkRow] = []
    for row in rows:
        taken[row.queue_id] += 1
        if taken[row.queue_id] <= shares[row.queue_id]:
            first.append(row)
    return first


def _held(
    connection: Connection,
    crawl: Crawl,
    rows: Sequence[WorkRow],
    turns: Sequence[Turn],
    hold: int,
) -> list[HandedURL]:
    """Hold work; return its URLs round robin over the queues, in the order of their turns."""
    if not rows:
        return []
    keys = {one.id: one.key for one in turns}
    now = turns[0].now
    pairs = columns(rows, items="item_id", tasks="task_id")
    until = min(now + hold, frontier.LAST_SECOND)
    connection.execute(HOLD, {**pairs, "until": until})
    served = list({row.queue_id: None for row in rows})
    connection.execute(SERVED, {"queues": served, "now": now})
    slot_ids = {one.id: one.slot_id for one in turns}
    connection.execute(USED, {"slots": sorted(slot_ids[one] for one in served)})
    found = {row.id: row for row in connection.execute(URLS, {"items": pairs["items"]})}
    place = {one.id: number for number, one in enumerate(turns)}
    seen: dict[int, int] = dict.fromkeys(keys, 0)
    ordered: list[tuple[int, int, HandedURL]] = []
    for row in rows:
        item = found.get(row.item_id)
        if item is None:
            continue
        seen[row.queue_id] += 1
        url, metadata = url_of(item.name, item.data)
        handed = HandedURL(crawl.name, keys[row.queue_id], url, metadata, row.item_id, row.task_id)
        ordered.append((seen[row.queue_id], place[row.queue_id], handed))
    ordered.sort(key=lambda one: one[:2])
    return [handed for _, _, handed in ordered]


def url_of(name: str, data: Any) -> tuple[str, frontier.Metadata]:
    """Return the URL and the metadata in an item's data; without a URL there its name."""
    if not isinstance(data, dict):
        return name, {}
    url, metadata = data.get("url"), data.get("metadata")
    return (
        url if isinstance(url, str) else name,
        metadata if isinstance(metadata, dict) else {},
    )


def _move_on(
    connection: Connection,
    crawl_id: int,
    turns: Iterable[Turn],
    looked_into: Iterable[Turn],
    served: Collection[int],
) -> None:
    """Give queues their next turn, and let nobody look into those that are empty."""
    tried = {one.id for one in looked_into}
    if empty := sorted(tried.difference(served)):
        queues.park(connection, crawl_id, empty)
    seconds: dict[int, int] = {}
    for one in turns:
        if one.id in served:
            seconds[one.id] = min(one.now + one.delay + 1, frontier.LAST_SECOND)
        elif one.id in tried:
            seconds[one.id] = one.now
        else:
            seconds[one.id] = one.opens_at or one.now + _LOOK_AGAIN
    if seconds:
        ordered = sorted(seconds)
        turned = {"queues": ordered, "seconds": [seconds[one] for one in ordered]}
        connection.execute(NEXT_TURNS, turned)


def give_back(connection: Connection, urls: Sequence[HandedURL]) -> None:
    """End the holds of URLs that were not sent."""
    ordered = sorted(urls, key=lambda one: (one.item_id, one.task_id))
    rows = connection.execute(GIVE_BACK, columns(ordered, items="item_id", tasks="task_id"))
    queues.wake(connection, {row.queue_id for row in rows})
