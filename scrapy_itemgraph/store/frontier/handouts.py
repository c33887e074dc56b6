"""URLs that crawlers get: the first of each queue whose turn it is, held for a while.

A hold is work that is put off, not a claim: it outlives every process and ends by itself.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.model import frontier
from scrapy_itemgraph.model.frontier import HandedURL
from scrapy_itemgraph.store import queues
from scrapy_itemgraph.store.columns import columns, typed
from scrapy_itemgraph.store.frontier import turns
from scrapy_itemgraph.store.registry.crawls import share_crawl
from scrapy_itemgraph.store.sql_conditions import IS_READY_BESIDE_OTHERS, IS_STOPPED
from scrapy_itemgraph.store.worklist import timers
from scrapy_itemgraph.store.worklist.admission import WorkRow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from scrapy_itemgraph.model.frontier import Request
    from scrapy_itemgraph.store.frontier.turns import Turn

CHUNK = 1000  # URLs, or queues, of a transaction

# Whether this server hands URLs out: one is paused by itself, or with all others.
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

# Kinds of work that are open. A crawl is shared if a spider has declared a task of it.
KINDS = text(f"""
    SELECT k.id, EXISTS (
        SELECT FROM tasks x WHERE x.crawl_id = t.crawl_id AND x.spider <> '{frontier.SPIDER}'
        OFFSET 0) AS is_shared
    FROM tasks t JOIN kinds k ON k.task_id = t.id
    WHERE t.crawl_id = :crawl AND t.name = :task AND t.is_enabled AND t.is_registered
        AND (t.max_failures IS NULL OR NOT {IS_STOPPED})
""")  # noqa: S608 - our own condition

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

# Holds of URLs that were not sent, unless somebody else holds them by now; they are put off until
# `later`, or not.
GIVE_BACK = text("""
    UPDATE work w SET not_before = to_timestamp(CAST(:later AS bigint)), tries = 0
    FROM unnest(CAST(:items AS bigint[]), CAST(:tasks AS int[]), CAST(:seconds AS bigint[]))
        AS back(item_id, task_id, until)
    WHERE w.item_id = back.item_id AND w.task_id = back.task_id AND w.token IS NULL
        AND w.tries = 1 AND w.not_before = to_timestamp(back.until)
    RETURNING w.queue_id
""")


class Crawl(NamedTuple):
    """A crawl with a frontier."""

    id: int
    name: str


class Cut(NamedTuple):
    """How many more URLs of a queue are asked for, which was `served` at a second."""

    left: int
    served: int


class Chunk(NamedTuple):
    """URLs that are held from now on, and of how many queues that were not handed out before.

    `cut` are queues that may have more than there was room for. The last chunk of a crawl
    `is_last`.
    """

    urls: list[HandedURL]
    queues: int = 0
    cut: Mapping[int, Cut] = {}
    is_last: bool = True


class _Look(NamedTuple):
    """Queues that are looked `into`, and how many URLs of each are `allowed`.

    All that have `moved` get their next turn, those that are `empty` none. It `is_last` if no other
    queue of the crawl waits.
    """

    allowed: Mapping[int, int]
    into: Sequence[Turn]
    moved: Sequence[Turn]
    empty: Sequence[Turn] = ()
    is_last: bool = True


class Search(NamedTuple):
    """How far a search for URLs has come: `room` is how many queues are still asked for.

    `crawls` are those that may have some, None until they are known. In the first of them it
    `began` at a moment: queues whose turn comes later were looked into since. So many queues are
    `looked_at` at least, for of some nothing may be handed out now; those that were `cut` come
    first.
    """

    room: int
    crawls: Sequence[Crawl] | None = None
    began: datetime | None = None
    looked_at: int = 1
    cut: Mapping[int, Cut] = {}

    @property
    def is_over(self) -> bool:
        """Whether nothing is to be looked into any more."""
        return self.crawls is not None and not self.crawls

    def after(self, chunk: Chunk) -> Search:
        """Return how it goes on."""
        crawls, room = self.crawls or (), self.room - chunk.queues
        if chunk.is_last or (room <= 0 and not chunk.cut):
            return Search(room, crawls[1:] if room > 0 else ())
        looked_at = 10 * max(self.looked_at, room)  # of the first too little was handed out
        return self._replace(room=room, looked_at=looked_at, cut=chunk.cut)


def step(
    connection: Connection, request: Request, own: int, search: Search
) -> tuple[list[HandedURL], Search]:
    """Hold URLs in one transaction of a server, `own`; return them, and how the search goes on."""
    if search.crawls is None:
        search = search._replace(crawls=crawls_of(connection, request, own))
    elif not connection.execute(STATE, {"own": own}).scalar_one():
        return [], Search(0, ())
    if not search.crawls:
        return [], search
    crawl = search.crawls[0]
    shared = share_crawl(connection, crawl.id)
    began = search.began
    if began is None:
        # URLs may be handed out whose date has come, or whose hold is over.
        staged = timers.stage_timers(connection, crawl.id, CHUNK)
        began = shared.now
        search = search._replace(began=began)
        if staged:  # which woke queues that nobody else should wait for
            return [], search
    chunk = _take(connection, crawl, request, search, began)
    return chunk.urls, search.after(chunk)


def crawls_of(connection: Connection, request: Request, own: int) -> list[Crawl]:
    """Return which crawls a request is for: none while this server, `own`, hands nothing out."""
    state = connection.execute(STATE, {"own": own})
    found = connection.execute(CRAWLS, {"crawl": request.crawl})
    return typed(found, Crawl) if state.scalar_one() else []


def _take(
    connection: Connection, crawl: Crawl, request: Request, search: Search, began: datetime
) -> Chunk:
    """Hold URLs of a crawl's queues whose turn it is, or of those that were cut."""
    limit = min(max(search.room, search.looked_at), CHUNK)
    opened = connection.execute(KINDS, {"crawl": crawl.id, "task": frontier.TASK})
    if search.cut:
        found = turns.locked(connection, search.cut)
    else:
        found = turns.due(connection, crawl.id, request.key, began, limit)
    kinds = opened.all()
    if not kinds:
        return Chunk([])
    numbers = [one.id for one in kinds]
    if search.cut:
        look = _look_again(found, search.cut, is_last=request.key is not None)
    else:
        look = _look(connection, request, found, search.room, numbers)
        if len(found) == limit and request.key is None:
            look = look._replace(is_last=False)
    share = max(1, CHUNK // max(1, len(look.into)))
    shares = {queue: min(share, left) for queue, left in look.allowed.items()}
    rows = _heads(connection, shares, numbers)
    taken = Counter(row.queue_id for row in rows)
    urls = _held(connection, crawl, rows, look.into, request.hold)
    turns.move_on(
        connection,
        crawl.id,
        look.moved,
        [*look.into, *look.empty],
        taken,
        is_shared=kinds[0].is_shared,
    )
    left = {
        one.id: Cut(look.allowed[one.id] - taken[one.id], look.into[0].now)
        for one in look.into
        if taken[one.id] == shares[one.id] < look.allowed[one.id]
    }
    return Chunk(urls, 0 if search.cut else len(taken), left, look.is_last and not left)


def _look_again(found: Sequence[Turn], cut: Mapping[int, Cut], *, is_last: bool) -> _Look:
    """Choose of queues that were cut those that nobody has shut or served meanwhile."""
    into = [
        one
        for one in found
        if one.last_served == cut[one.id].served and not one.is_shut and one.blocked_until < one.now
    ]
    return _Look({one.id: cut[one.id].left for one in into}, into, into, is_last=is_last)


def _look(
    connection: Connection,
    request: Request,
    found: Sequence[Turn],
    room: int,
    kinds: Sequence[int],
) -> _Look:
    """Choose among queues whose turn it is those that are looked into, so many at most."""
    may = turns.opened(connection, found, request.urls_per_queue, kinds)
    empty: Sequence[Turn] = ()
    if len(may) > room:
        may, empty = turns.ready(connection, may, kinds)
    into, waiting = may[:room], {one.id for one in may[room:]}
    each = request.urls_per_queue or frontier.MAX_SECONDS
    return _Look(
        {one.id: each for one in into},
        into,
        [one for one in found if one.id not in waiting],
        empty,
        is_last=request.key is not None or not waiting,
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
    looked_into: Sequence[Turn],
    hold: int,
) -> list[HandedURL]:
    """Hold work; return its URLs round robin over the queues, in the order of their turns."""
    if not rows:
        return []
    keys = {one.id: one.key for one in looked_into}
    now = looked_into[0].now
    pairs = columns(rows, items="item_id", tasks="task_id")
    until = min(now + hold, frontier.LAST_SECOND)
    connection.execute(HOLD, {**pairs, "until": until})
    served = list({row.queue_id: None for row in rows})
    connection.execute(SERVED, {"queues": served, "now": now})
    slot_ids = {one.id: one.slot_id for one in looked_into}
    connection.execute(USED, {"slots": sorted(slot_ids[one] for one in served)})
    found = {row.id: row for row in connection.execute(URLS, {"items": pairs["items"]})}
    place = {one.id: number for number, one in enumerate(looked_into)}
    seen: dict[int, int] = dict.fromkeys(keys, 0)
    ordered: list[tuple[int, int, HandedURL]] = []
    for row in rows:
        item = found.get(row.item_id)
        if item is None:
            continue
        seen[row.queue_id] += 1
        url, metadata = url_of(item.name, item.data)
        handed = HandedURL(
            crawl.name, keys[row.queue_id], url, metadata, row.item_id, row.task_id, until
        )
        ordered.append((seen[row.queue_id], place[row.queue_id], handed))
    ordered.sort(key=lambda one: one[:2])
    return [handed for _, _, handed in ordered]


def url_of(name: str, data: Any) -> tuple[str, frontier.Metadata]:
    """Return the URL and the metadata in an item's data; without a URL there its name."""
    if not isinstance(data, dict):
        return name, {}
    url, metadata = data.get("url"), data.get("metadata")
    return url if isinstance(url, str) else name, _as_lists(metadata)


def _as_lists(metadata: Any) -> frontier.Metadata:
    """Return what of metadata has the form of a crawler's: a spider writes there what it likes."""
    if not isinstance(metadata, dict):
        return {}
    return {
        name: [one for one in values if isinstance(one, str)]
        for name, values in metadata.items()
        if isinstance(values, list)
    }


def give_back(connection: Connection, urls: Sequence[HandedURL], later: int | None = None) -> None:
    """End the holds of URLs that were not sent; they are due at once, or `later`, in seconds."""
    ordered = sorted(urls, key=lambda one: (one.item_id, one.task_id))
    back = columns(ordered, items="item_id", tasks="task_id", seconds="until")
    rows = connection.execute(GIVE_BACK, {**back, "later": later})
    queues.wake(connection, {row.queue_id for row in rows})
