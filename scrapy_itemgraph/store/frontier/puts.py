"""URLs that crawlers put into queues: what they discovered, and what they know of one by now.

A discovered URL becomes an item with work, if it is new. What a crawler knows of a URL overwrites
what is there: it ends a hold, and the URL waits for its date, or is completed.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.model import frontier, item_names
from scrapy_itemgraph.model.frontier import Status
from scrapy_itemgraph.postgres.arrays import number_array, text_array
from scrapy_itemgraph.store import failures, items
from scrapy_itemgraph.store import queues as stored_queues
from scrapy_itemgraph.store.columns import typed
from scrapy_itemgraph.store.depths import links
from scrapy_itemgraph.store.frontier import queues
from scrapy_itemgraph.store.sql_conditions import IS_READABLE
from scrapy_itemgraph.store.urls import completions
from scrapy_itemgraph.store.worklist import refresh

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from sqlalchemy import Connection, CursorResult

    from scrapy_itemgraph.model.frontier import PutURL
    from scrapy_itemgraph.store.frontier.crawls import Fetch
    from scrapy_itemgraph.store.frontier.queues import Queue
    from scrapy_itemgraph.store.registry.crawls import SharedCrawl

_BY = "urlfrontier"  # who handles failures of URLs that are put again

_SECOND = "CAST(floor(extract(epoch FROM now())) AS bigint)"
_NICE = f"CAST(least(coalesce(given.date, {_SECOND}), {frontier.LAST_NICE}) AS int)"
_START = f"""CASE WHEN given.date > {_SECOND}
            THEN to_timestamp(least(given.date, {frontier.LAST_SECOND})) END"""
_GIVEN = """unnest(CAST(:items AS bigint[]), CAST(:slots AS int[]), CAST(:queues AS int[]),
            CAST(:names AS text[]), CAST(:data AS text[]), CAST(:dates AS bigint[]))
            AS given(id, slot_id, queue_id, name, data, date)"""

# Names that nobody has taken, by their places in the array, and numbers for what they are to be.
NEW = text("""
    SELECT wanted.place, nextval('items_id_seq') AS item
    FROM unnest(CAST(:keys AS uuid[])) WITH ORDINALITY AS wanted(key, place)
    WHERE NOT EXISTS (
        SELECT FROM aliases a WHERE a.crawl_id = :crawl AND a.key = wanted.key OFFSET 0)
""")

_MADE = f"""
    WITH given AS MATERIALIZED (SELECT * FROM {_GIVEN}),
    made AS (
        INSERT INTO items (id, crawl_id, slot_id, name, data, nice, not_before, in_frontier)
        SELECT given.id, :crawl, given.slot_id, given.name, CAST(given.data AS json), {_NICE},
            {_START}, true
        FROM given)"""  # noqa: S608 - our own expressions
_TAGGED = "INSERT INTO tags (item_id, tag_name, crawl_id) SELECT given.id, :tag, :crawl FROM given"

INSERT = text(f"{_MADE} {_TAGGED}")

# With their work, where it follows from the URL alone.
INSERT_WITH_WORK = text(f"""
    {_MADE},
    tagged AS ({_TAGGED})
    INSERT INTO work (item_id, task_id, crawl_id, queue_id, kind_id, is_stale, nice, not_before)
    SELECT given.id, :task, :crawl, given.queue_id, :kind, false, {_NICE}, {_START}
    FROM given WHERE given.date IS DISTINCT FROM 0
""")  # noqa: S608 - our own expressions

# Keys in the data that a spider wrote stay, and all of it that PostgreSQL cannot read.
UPDATE = text(f"""
    UPDATE items i
    SET data = CASE
            WHEN NOT {IS_READABLE} THEN i.data
            WHEN json_typeof(i.data) <> 'object' OR NOT EXISTS (
                SELECT FROM json_object_keys(i.data) AS has(key)
                WHERE has.key NOT IN ('url', 'metadata', 'refetchable_from_date', 'download_slot'))
            THEN CAST(given.data AS json)
            ELSE CAST(CAST(i.data AS jsonb) - 'download_slot' || CAST(given.data AS jsonb)
                AS json) END,
        nice = {_NICE}, not_before = {_START}, slot_id = given.slot_id, in_frontier = true,
        updated_at = clock_timestamp()
    FROM {_GIVEN}
    WHERE i.id = given.id
""")  # noqa: S608 - our own expressions

TAG = text("""
    INSERT INTO tags (item_id, tag_name, crawl_id)
    SELECT given.id, :tag, :crawl FROM unnest(CAST(:items AS bigint[])) AS given(id)
    ON CONFLICT DO NOTHING
""")

# Work that is to be fetched at its date; who has claimed it goes on.
OPEN = text(f"""
    INSERT INTO work AS w
        (item_id, task_id, crawl_id, queue_id, kind_id, is_stale, nice, not_before)
    SELECT given.id, :task, :crawl, given.queue_id, :kind, false, {_NICE}, {_START}
    FROM {_GIVEN}
    ON CONFLICT (item_id, task_id) DO UPDATE
    SET queue_id = excluded.queue_id, kind_id = excluded.kind_id, is_stale = false,
        nice = excluded.nice, not_before = excluded.not_before, tries = 0, deaths = 0, stalls = 0,
        request = NULL
    WHERE w.token IS NULL
""")  # noqa: S608 - our own expressions

# The same where work follows from more than the URL: `refresh` has made or moved it before.
END_HOLDS = text(f"""
    UPDATE work w SET not_before = {_START}, tries = 0, deaths = 0, stalls = 0, request = NULL
    FROM {_GIVEN}
    WHERE w.item_id = given.id AND w.task_id = :task AND w.token IS NULL
""")  # noqa: S608 - our own expressions

# What was done before, of URLs that may be fetched again: they were never run, as it were.
FORGET = text("""
    UPDATE results r
    SET completed_at = NULL, invalidated_at = NULL, expires_at = NULL, due_at = NULL,
        is_successful = false, is_held = false, hold = NULL
    FROM unnest(CAST(:items AS bigint[])) AS given(id)
    WHERE r.item_id = given.id AND r.task_id = :task
""")

COMPLETE = text("""
    INSERT INTO results AS r
        (item_id, task_id, task_version, is_successful, completed_at, created_at, run)
    SELECT given.id, :task, :version, true, clock_timestamp(), clock_timestamp(), :run
    FROM unnest(CAST(:items AS bigint[])) AS given(id)
    ON CONFLICT (item_id, task_id) DO UPDATE
    SET task_version = excluded.task_version, is_successful = true,
        completed_at = excluded.completed_at, invalidated_at = NULL, expires_at = NULL,
        due_at = NULL, is_held = false, hold = NULL, run = excluded.run
""")

OWNERS = text("""
    SELECT a.name, a.item_id FROM unnest(CAST(:keys AS uuid[])) AS wanted(key)
    JOIN aliases a ON a.crawl_id = :crawl AND a.key = wanted.key
    WHERE a.item_id IS NOT NULL
""")

# Items of URLs whose key is not their host, and which a spider gave the host's name.
PLAIN_NAMES = text("""
    SELECT a.key FROM unnest(CAST(:keys AS uuid[]), CAST(:slots AS int[])) AS wanted(key, slot_id)
    CROSS JOIN LATERAL (
        SELECT key, item_id FROM aliases
        WHERE aliases.crawl_id = :crawl AND aliases.key = wanted.key OFFSET 0) AS a
    CROSS JOIN LATERAL (
        SELECT FROM items i
        WHERE i.id = a.item_id AND i.slot_id = wanted.slot_id AND i.in_frontier OFFSET 0) AS same
""")

STATES = text("""
    SELECT i.id, i.slot_id, coalesce(i.in_frontier, false) AS is_ours,
        r.completed_at IS NOT NULL AS is_completed, coalesce(r.is_held, false) AS is_held,
        r.item_id IS NOT NULL AS has_result
    FROM unnest(CAST(:items AS bigint[])) AS wanted(id)
    JOIN items i ON i.id = wanted.id
    LEFT JOIN results r ON r.item_id = i.id AND r.task_id = :task
""")


class State(NamedTuple):
    """An item that is there, and what was done of it."""

    id: int
    slot_id: int
    is_ours: bool
    is_completed: bool
    is_held: bool
    has_result: bool


class URL(NamedTuple):
    """A URL as it is to be written: the last of several puts of it counts."""

    name: str
    name_key: str
    key: str
    data: str
    date: int | None  # None: it was only discovered


class Puts:
    """URLs of one crawl, made ready without a database.

    `keys` maps each name to its key. What is written of a URL is made by `url`, for most
    of what comes in is known.
    """

    def __init__(self, given: Sequence[PutURL]) -> None:
        self._given = given
        self._last: dict[str, PutURL] = {}  # of several puts of a URL the one that counts
        for one in given:
            if one.name not in self._last or one.refetchable_from is not None:
                self._last[one.name] = one
        self.keys = {name: item_names.hex_key(name) for name in self._last}

    def changing(self, new: Container[str]) -> list[PutURL]:
        """Return what is to be written: what is new, and what is told of the others."""
        return [
            one
            for name, one in self._last.items()
            if one.refetchable_from is not None or name in new
        ]

    def url(self, one: PutURL) -> URL:
        """Return what is written of a URL."""
        date = one.refetchable_from
        date = None if date is None else min(date, frontier.MAX_SECONDS)
        return URL(one.name, self.keys[one.name], one.key, frontier.item_data(one), date)

    def rename(self, name: str, other: str) -> None:
        """Have a URL go by another name, which no other URL of these has."""
        self._given = [one._replace(name=other) if one.name == name else one for one in self._given]
        self._last[other] = self._last.pop(name)._replace(name=other)
        self.keys[other] = item_names.hex_key(other)

    def statuses(self, new: Container[str], skipped: Container[str] = ()) -> list[Status]:
        """Return what became of each put, where some names were new, and some are skipped."""
        seen: set[str] = set()
        told: list[Status] = []
        for one in self._given:
            name = one.name
            is_late = one.refetchable_from is None and (name in seen or name not in new)
            told.append(Status.SKIPPED if is_late or name in skipped else Status.OK)
            seen.add(name)
        return told


def find_new(connection: Connection, given: Puts, crawl_id: int) -> dict[str, int]:
    """Return the names that nobody has taken, and numbers for their items, in their order."""
    names = list(given.keys)
    asked = {"crawl": crawl_id, "keys": text_array(given.keys.values())}
    return {names[place - 1]: item for place, item in connection.execute(NEW, asked)}


def put(
    connection: Connection, given: Puts, new: dict[str, int], crawl: SharedCrawl, fetch: Fetch
) -> list[Status]:
    """Write URLs of a crawl; return what became of each put, in their order.

    `new` is what `find_new` returned; names that others have taken since are taken out.
    """
    found = queues.find(connection, crawl.id, [one.key for one in given.changing(new)])
    _name_as_spiders_do(connection, given, new, crawl.id, found)
    changing = given.changing(new)
    closed = {one.name for one in changing if found[one.key].is_deleting}
    written = [one for one in changing if one.name not in closed]
    if not written:
        return given.statuses(new, closed)
    fetch = fetch._replace(is_plain=fetch.is_plain and not crawl.tracks_depth)
    taken = _take_names(connection, crawl.id, given, new, [one.name for one in written])
    urls = [given.url(one) for one in written]  # while the database takes the names
    for lost in () if taken is None else taken.scalars():
        del new[lost]
    batch = _Batch(connection, crawl, fetch, queues.make(connection, crawl.id, found))
    batch.add([(new[one.name], one) for one in urls if one.name in new])
    told = [one for one in urls if one.name not in new and one.date is not None]
    gone = batch.overwrite(told) if told else set()
    batch.end()
    return given.statuses(new, {*closed, *gone})


def _name_as_spiders_do(
    connection: Connection,
    given: Puts,
    new: dict[str, int],
    crawl_id: int,
    found: Mapping[str, Queue],
) -> None:
    """Have URLs go by the names of items that spiders made of them: `URL:` and the URL.

    The key of such an item need not be its host: a spider names a slot in the data.
    """
    plain: dict[str, PutURL] = {}  # by the keys of the names that the URLs have here
    for one in given.changing(new):
        if one.name in new and one.name.startswith(frontier.KEYED_PREFIX):
            other = frontier.PREFIX + one.url
            if other not in given.keys:
                plain[item_names.hex_key(other)] = one
    if not plain:
        return
    asked = {
        "crawl": crawl_id,
        "keys": text_array(plain),
        "slots": number_array(found[one.key].slot_id for one in plain.values()),
    }
    for key in connection.execute(PLAIN_NAMES, asked).scalars():
        one = plain[key.hex]
        given.rename(one.name, frontier.PREFIX + one.url)
        del new[one.name]


def _take_names(
    connection: Connection, crawl_id: int, given: Puts, new: Mapping[str, int], names: list[str]
) -> CursorResult[Any] | None:
    """Take those of the names that are new, sorted by key; the answer has those that others took.

    None: there are none.
    """
    ordered = sorted((given.keys[name], name) for name in names if name in new)
    if not ordered:
        return None
    taken = {
        "crawl": crawl_id,
        "keys": text_array(key for key, _ in ordered),
        "names": text_array(name for _, name in ordered),
        "items": number_array(new[name] for _, name in ordered),
    }
    return connection.execute(items.TAKE_NAMES, taken)


class _Batch:
    """Writes URLs within a transaction, and what follows from them for their queues."""

    def __init__(
        self,
        connection: Connection,
        crawl: SharedCrawl,
        fetch: Fetch,
        found: Mapping[str, Queue],
    ) -> None:
        self._connection = connection
        self._crawl = crawl
        self._fetch = fetch
        self._queues = found
        self._completed: Counter[int] = Counter()  # how many more of a queue, where it counts them
        self._awake: set[int] = set()

    def add(self, new: Sequence[tuple[int, URL]]) -> None:
        """Write URLs that are new, by the numbers of their items."""
        if not new:
            return
        connection, crawl, fetch = self._connection, self._crawl, self._fetch
        made = {**self._columns(new), "tag": frontier.TAG, "crawl": crawl.id}
        if fetch.is_plain:
            made |= {"task": fetch.task_id, "kind": fetch.kind_id}
            connection.execute(INSERT_WITH_WORK, made)
        else:
            connection.execute(INSERT, made)
        if crawl.tracks_depth:
            roots = {number for number, _ in new}
            links.record(connection, crawl.id, links.Found(roots=roots, new=roots))
        self._schedule(new, {})
        self._count(new, {})

    def overwrite(self, told: Sequence[URL]) -> set[str]:
        """Write what is known of URLs that are there; return those whose item was deleted."""
        connection = self._connection
        owners = self._locked(told)
        # Of several names of an item the last counts.
        given = sorted({owners[one.name]: one for one in told if one.name in owners}.items())
        numbers = [number for number, _ in given]
        states = {
            one.id: one
            for one in typed(
                connection.execute(STATES, {"items": numbers, "task": self._fetch.task_id}), State
            )
        }
        strange = [number for number in numbers if not states[number].is_ours]
        if strange:
            tagged = {"items": strange, "tag": frontier.TAG, "crawl": self._crawl.id}
            connection.execute(TAG, tagged)
            self._fetch = self._fetch._replace(is_plain=False)
        if given:
            comes = {
                number
                for number, one in given
                if not states[number].is_ours
                or states[number].slot_id != self._queues[one.key].slot_id
            }
            tally = completions.Tally(connection, self._crawl.id, comes) if comes else None
            connection.execute(UPDATE, self._columns(given))
            self._schedule(given, states)
            self._count((one for one in given if one[0] not in comes), states)
            if tally is not None:
                self._completed.update(tally.more())
        return {one.name for one in told if one.name not in owners}

    def _locked(self, told: Sequence[URL]) -> dict[str, int]:
        """Lock the items of URLs; return them by the names that are still taken.

        An item that was merged into another one while we waited gave that its names.
        """
        owners: dict[str, int] = {}
        missing = list(told)
        while missing:
            asked = {"crawl": self._crawl.id, "keys": text_array(one.name_key for one in missing)}
            rows = self._connection.execute(OWNERS, asked)
            found = {row.name: row.item_id for row in rows}
            there = set(items.lock_items(self._connection, found.values()))
            owners |= {name: item for name, item in found.items() if item in there}
            missing = [one for one in missing if one.name in found and one.name not in owners]
        return owners

    def _schedule(self, given: Sequence[tuple[int, URL]], states: Mapping[int, State]) -> None:
        """Have URLs wait for their dates, or be completed; `states` are of those that were."""
        connection, fetch = self._connection, self._fetch
        done = [number for number, one in given if one.date == 0]
        due = [(number, one) for number, one in given if one.date != 0]
        held = [number for number, _ in given if number in states and states[number].is_held]
        if held:
            handled = {"items": held, "tasks": [fetch.task_id] * len(held), "by": _BY}
            connection.execute(failures.SUPERSEDE, handled)
        if done:
            completed = {"items": number_array(sorted(done)), "task": fetch.task_id}
            completed |= {"version": fetch.version, "run": self._crawl.run}
            connection.execute(COMPLETE, completed)
        again = [n for n, _ in due if n in states and states[n].has_result]
        if again:
            connection.execute(FORGET, {"items": again, "task": fetch.task_id})
        if not fetch.is_plain:
            numbers = [number for number, _ in given]
            new = [[number] for number in numbers if number not in states]
            old = [number for number in numbers if number in states]
            refresh.refresh(connection, old, new=new, crawl=self._crawl)
            connection.execute(END_HOLDS, {**self._columns(due), "task": fetch.task_id})
        elif states:  # those that are new have their work
            refresh.withdraw(connection, [(n, fetch.task_id) for n in done])
            if due:
                work = {**self._columns(due), "task": fetch.task_id, "kind": fetch.kind_id}
                connection.execute(OPEN, {**work, "crawl": self._crawl.id})
        self._awake.update(self._queues[one.key].queue_id for _, one in due)

    def _count(self, given: Iterable[tuple[int, URL]], states: Mapping[int, State]) -> None:
        for number, one in given:
            queue = self._queues[one.key]
            if queue.has_limit:
                was_done = number in states and states[number].is_completed
                self._completed[queue.queue_id] += (one.date == 0) - was_done

    def end(self) -> None:
        """Count what was completed, and wake the queues that have something to fetch."""
        completions.add(self._connection, self._completed)
        stored_queues.wake(self._connection, self._awake)

    def _columns(self, given: Sequence[tuple[int, URL]]) -> dict[str, str]:
        ours = [self._queues[one.key] for _, one in given]
        return {
            "items": number_array(number for number, _ in given),
            "slots": number_array(one.slot_id for one in ours),
            "queues": number_array(one.queue_id for one in ours),
            "names": text_array(one.name for _, one in given),
            "data": text_array(one.data for _, one in given),
            "dates": number_array(one.date for _, one in given),
        }
