"""URLs that crawlers put into queues: what they discovered, and what they know of one by now.

A discovered URL becomes an item with work, if it is new. What a crawler knows of a URL overwrites
what is there: it ends a hold, and the URL waits for its date, or is completed.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.model import frontier, input_checks, item_names
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
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import Connection

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

INSERT = text(f"""
    WITH given AS MATERIALIZED (SELECT * FROM {_GIVEN}),
    made AS (
        INSERT INTO items (id, crawl_id, slot_id, name, data, nice, not_before, in_frontier)
        SELECT given.id, :crawl, given.slot_id, given.name, CAST(given.data AS json), {_NICE},
            {_START}, true
        FROM given)
    INSERT INTO tags (item_id, tag_name, crawl_id) SELECT given.id, :tag, :crawl FROM given
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
    """URLs of one crawl, made ready without a database. `unfit` are too long to be stored."""

    def __init__(self, given: Sequence[PutURL]) -> None:
        self.given = given
        self.names: list[str] = []
        self.urls: dict[str, URL] = {}
        self.unfit: set[str] = set()
        last: dict[str, PutURL] = {}
        for one in given:
            name = frontier.item_name(one.url, one.key, frontier.key_of(one.url))
            self.names.append(name)
            if name not in last or one.refetchable_from is not None:
                last[name] = one
        for name, one in last.items():
            if len(name.encode()) > input_checks.MAX_ID_BYTES:
                self.unfit.add(name)
                continue
            date = one.refetchable_from
            date = None if date is None else min(date, frontier.MAX_SECONDS)
            data = input_checks.write_json(frontier.item_data(one))
            self.urls[name] = URL(name, item_names.hex_key(name), one.key, data, date)

    def rename(self, name: str, other: str) -> None:
        """Have a URL go by another name, which no other URL of these has."""
        self.urls[other] = self.urls.pop(name)._replace(
            name=other, name_key=item_names.hex_key(other)
        )
        self.names = [other if one == name else one for one in self.names]

    def statuses(self, known: Iterable[str], skipped: Iterable[str]) -> list[Status]:
        """Return what became of each put, where some names were known, and some are skipped."""
        seen, refused = set(known), {*self.unfit, *skipped}
        told: list[Status] = []
        for name, one in zip(self.names, self.given, strict=True):
            is_late = one.refetchable_from is None and name in seen
            told.append(Status.SKIPPED if is_late or name in refused else Status.OK)
            seen.add(name)
        return told


def put(connection: Connection, given: Puts, crawl: SharedCrawl, fetch: Fetch) -> list[Status]:
    """Write URLs of a crawl; return what became of each put, in their order."""
    found = queues.find(connection, crawl.id, {one.key for one in given.urls.values()})
    _name_as_spiders_do(connection, given, crawl.id, found.slots)
    closed = {name for name, one in given.urls.items() if found.is_deleting(one.key)}
    urls = [one for name, one in given.urls.items() if name not in closed]
    if not urls:
        return given.statuses((), closed)
    fetch = fetch._replace(is_plain=fetch.is_plain and not crawl.tracks_depth)
    drawn = list(connection.execute(items.NEXT_IDS, {"count": len(urls)}).scalars())
    numbers = {one.name: number for one, number in zip(urls, drawn, strict=True)}
    known = _take_names(connection, crawl.id, urls, numbers)
    new = [(numbers[one.name], one) for one in urls if one.name not in known]
    batch = _Batch(connection, crawl, fetch, queues.make(connection, crawl.id, found))
    batch.add(new)
    told = [one for one in urls if one.name in known and one.date is not None]
    gone = batch.overwrite(told) if told else set()
    batch.end()
    return given.statuses(known, {*closed, *gone})


def _name_as_spiders_do(
    connection: Connection, given: Puts, crawl_id: int, slots: Mapping[str, int]
) -> None:
    """Have URLs go by the names of items that spiders made of them: `URL:` and the URL.

    The key of such an item need not be its host: a spider names a slot in the data.
    """
    plain: dict[str, str] = {}  # names that the URLs have here, by the keys of those names
    for name in given.urls:
        if name.startswith(frontier.KEYED_PREFIX):
            other = frontier.PREFIX + name.partition(":")[2]
            if other not in given.urls:
                plain[item_names.hex_key(other)] = name
    if not plain:
        return
    asked = {
        "crawl": crawl_id,
        "keys": text_array(plain),
        "slots": number_array(slots[given.urls[name].key] for name in plain.values()),
    }
    for key in connection.execute(PLAIN_NAMES, asked).scalars():
        name = plain[key.hex]
        given.rename(name, frontier.PREFIX + name.partition(":")[2])


def _take_names(
    connection: Connection, crawl_id: int, urls: Sequence[URL], numbers: Mapping[str, int]
) -> set[str]:
    """Take the names of URLs, sorted by key; return those that are there already."""
    ordered = sorted(urls, key=lambda one: one.name_key)
    taken = {
        "crawl": crawl_id,
        "keys": text_array(one.name_key for one in ordered),
        "names": text_array(one.name for one in ordered),
        "items": number_array(numbers[one.name] for one in ordered),
    }
    return set(connection.execute(items.TAKE_NAMES, taken).scalars())


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
        connection, crawl = self._connection, self._crawl
        connection.execute(INSERT, {**self._columns(new), "tag": frontier.TAG, "crawl": crawl.id})
        if crawl.tracks_depth:
            made = {number for number, _ in new}
            links.record(connection, crawl.id, links.Found(roots=made, new=made))
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
        else:
            refresh.withdraw(connection, [(n, fetch.task_id) for n in done if n in states])
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
