"""A crawl made of the lines of a dump, in one transaction: nobody sees it before it is whole.

Lines are written some thousand items at a time, by COPY, with numbers of this database's own.
"""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import psycopg
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from scrapy_itemgraph.exceptions import ItemGraphError, OperationError
from scrapy_itemgraph.model import error_fingerprints, input_checks, item_names
from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.postgres.arrays import text_array
from scrapy_itemgraph.store import items as stored_items
from scrapy_itemgraph.store import queues
from scrapy_itemgraph.store.admin import dump_lines, load_depths, load_rows
from scrapy_itemgraph.store.admin.load_contents import LoadedContents
from scrapy_itemgraph.store.admin.load_declared import Declared
from scrapy_itemgraph.store.admin.load_rows import ItemRows, Numbers, item_id, pairs
from scrapy_itemgraph.store.depths import links as stored_links
from scrapy_itemgraph.store.frontier import crawls as frontier_crawls
from scrapy_itemgraph.store.worklist import refresh

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Future, ThreadPoolExecutor

    from sqlalchemy import Connection

    from scrapy_itemgraph.store.admin.load_contents import Store
    from scrapy_itemgraph.store.admin.load_rows import Limit, Rows

    Intern = Callable[[Iterable[Limit]], dict[Limit, int]]
    Line = tuple[str, dict[str, Any]]  # where it stands, for errors, and what it says

STEP = 2000  # items that are written at a time,
STEP_CHARACTERS = 16_000_000  # or fewer, whose lines have so many together,
STEP_CHARACTERS_OF_LINKS = 1_000_000  # or so many, where each few are a name to be looked up
_COUNTED = {
    "item": "items",
    "failure": "failures",
    "scraped": "scraped",
    "queue": "queues",
    "depth": "depths",
    "links": "links",
    "depth_work": "depth_work",
}
_ALWAYS = ("items", "failures", "scraped")  # of which each dump says how many there are
_OF_DATA = {"22", "23"}  # SQLSTATE classes: values that cannot be stored, or not beside others
_MISTAKES = (
    ItemGraphError,
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    DBAPIError,
    psycopg.Error,
)

MAKE_CRAWL = text("INSERT INTO crawls (name) VALUES (:name) ON CONFLICT DO NOTHING RETURNING id")

NEXT_WORK = text("SELECT nextval('work_seq_seq')")
MOST_WORK = 10**12  # numbers that the work of one crawl may span

OWNERS = text("""
    SELECT a.name, a.item_id FROM unnest(CAST(:keys AS uuid[])) AS wanted(key)
    JOIN aliases a ON a.crawl_id = :crawl AND a.key = wanted.key
""")

DOCUMENT = text("SELECT CAST(CAST(:line AS json) #> CAST(:path AS text[]) AS text)")

_DRAWN_STEPS = 20  # for which numbers of items are drawn at once


class Load:
    """Writes the lines of one dump; `add` each, then `finish`.

    `intern` returns the numbers of limits, made in transactions of their own: in this one, which
    lasts, others would wait for them. `store` stores a content. `writer` is one thread. An
    OperationError names the line.
    """

    def __init__(
        self,
        connection: Connection,
        name: str,
        intern: Intern,
        writer: ThreadPoolExecutor,
        store: Store,
    ) -> None:
        self._connection = connection
        self._writer = writer
        self._intern = intern
        self._contents = LoadedContents(connection, store)
        self._limits: dict[Limit, int] = {}
        self._queues: dict[tuple[int, int], int] = {}
        self._kinds: dict[tuple[int, tuple[int, ...]], int] = {}
        self._drawn: deque[int] = deque()  # numbers of items to come
        self._claimed: list[int] = []  # items whose work was, when the dump was made
        self._waiting: list[Line] = []
        self._characters = 0  # of what waits
        self._kind = ""  # of what waits
        self._has_ended = False
        self._where = ""  # what is written just now
        self._writing: tuple[Future[None], str] | None = None
        self.counts = dict.fromkeys(_ALWAYS, 0)
        input_checks.check_crawl(name)
        made = connection.execute(MAKE_CRAWL, {"name": name}).scalar()
        if made is None:
            raise OperationError(
                f"there is a crawl {name!r} already; a dump is loaded into a new one, which "
                "--crawl NAME names"
            )
        self._crawl: int = made
        self._declared = Declared(connection, made, self._limit_ids)
        self._tasks = self._declared.tasks
        self._depth_rows = load_depths.DepthRows(made)
        # What is loaded goes before what comes later: work is done in the order of its numbers.
        self._before = connection.execute(NEXT_WORK).scalar_one() - MOST_WORK

    def add(self, where: str, given: str) -> None:
        """Take one line of the dump after its first."""
        if self._has_ended:
            raise OperationError(f"{where}: there is a line after that of the kind 'end'")
        line = dump_lines.read(where, given, self._document)
        kind = line.get("kind")
        if kind in _COUNTED:
            with _named(where):
                self._contents.end()
            if kind != self._kind:
                self._write()
            self._kind = str(kind)
            self._waiting.append((where, line))
            self._characters += len(given)
            most = STEP_CHARACTERS_OF_LINKS if kind == "links" else STEP_CHARACTERS
            if len(self._waiting) == STEP or self._characters >= most:
                self._write()
            return
        self._write()
        self._where = where
        with _named(where):
            self._wait()
            if kind != "part":
                self._contents.end()
            self._one(str(kind), line)

    def close(self) -> None:
        """Let go of what is half read."""
        self._contents.close()

    def finish(self) -> dict[str, int]:
        """Let the crawl's work be claimed, and return how much there is of what."""
        if not self._has_ended:
            raise OperationError(
                "the dump has no line of the kind 'end': it was cut off, so nothing was loaded"
            )
        self._wait()
        # Claimed work stands until the claim ends, even if nothing calls for it any more.
        refresh.refresh(self._connection, self._claimed)
        queues.wake_crawl(self._connection, self._crawl)
        return self.counts

    def _document(self, line: str, path: list[str]) -> str:
        """Return the text of a part of a line, as it stands there."""
        self._wait()
        found: str = self._connection.execute(DOCUMENT, {"line": line, "path": path}).scalar_one()
        return found

    def _one(self, kind: str, line: dict[str, Any]) -> None:
        """Write a line of which there are few."""
        if kind in self._declared.kinds:
            self._declared.add(kind, line)
        elif kind == "taken":
            names = line["names"]
            rows = [(self._crawl, item_names.hex_key(one), item_id(one), None) for one in names]
            self._copy({load_rows.ALIASES: rows})
        elif kind == "content":
            self._contents.begin(line["sha256"], line["size"])
            self.counts["contents"] = self.counts.get("contents", 0) + 1
        elif kind == "part":
            self._contents.add(line["base64"])
        elif kind == "end":
            self._end(line)
        else:
            raise OperationError(f"there is no kind {kind!r} of lines in a dump")

    def _end(self, line: dict[str, Any]) -> None:
        if any(
            int(line.get(name, 0)) != self.counts.get(name, 0)
            for name in {*line, *self.counts} - {"kind"}
        ):
            raise OperationError(
                f"there should be {line}, and there are {self.counts}: lines are missing"
            )
        self._declared.end()
        self._has_ended = True

    def _write(self) -> None:
        """Write what waits, of one kind."""
        if not self._waiting:
            return
        lines, self._waiting = self._waiting, []
        self._characters = 0
        writers = {
            "item": self._items,
            "failure": self._failures,
            "scraped": self._scraped,
            "queue": self._frontier_queues,
            **dict.fromkeys(("depth", "links", "depth_work"), self._depths),
        }
        self._where = f"{lines[0][0]} to {lines[-1][0]}"
        counted = _COUNTED[self._kind]
        self.counts[counted] = self.counts.get(counted, 0) + len(lines)
        with _named(self._where):
            writers[self._kind](lines)

    def _items(self, lines: Sequence[Line]) -> None:
        numbers = self._numbers(line for _, line in lines)
        drawn = self._draw(len(lines))
        rows: Rows = {table: [] for table in load_rows.OF_ITEMS}
        rulesets = self._declared.rulesets
        make = ItemRows(self._crawl, self._before, self._tasks, self._contents, rulesets).add
        for where, line in lines:
            item = drawn.popleft()
            try:
                make(rows, line, item, numbers)
            except _MISTAKES as error:
                raise _mistake(where, error) from None
            if any(work.get("is_claimed") for work in line.get("work", ())):
                self._claimed.append(item)
        rows[load_rows.ALIASES].sort(key=itemgetter(1))
        self._copy(rows)

    def _draw(self, count: int) -> deque[int]:
        """Have at least so many numbers for new items, drawn for several steps at once."""
        if len(self._drawn) < count:
            self._wait()
            given = {"count": _DRAWN_STEPS * STEP}
            found = self._connection.execute(stored_items.NEXT_IDS, given)
            self._drawn.extend(found.scalars())
        return self._drawn

    def _numbers(self, items: Iterable[Mapping[str, Any]]) -> Numbers:
        """Return the numbers of slots, queues and kinds that items name, made if new."""
        slots, worked = set(), set()
        kinds: dict[tuple[str, tuple[Limit, ...]], None] = {}
        for item in items:
            slots.add(item["slot"])
            for work in item.get("work", ()):
                worked.add(work.get("slot", item["slot"]))
                limits_of = work.get("limits")
                kinds[work["task"], pairs(limits_of) if limits_of else ()] = None
        limits = {one for _, some in kinds for one in some}
        ids = self._limit_ids([*limits, *(("slot", name) for name in slots | worked)])
        keys = {
            kind: (self._tasks[kind[0]], tuple(sorted(ids[one] for one in kind[1])))
            for kind in kinds
        }
        places = {(self._crawl, ids["slot", name]) for name in worked}
        if new_queues := places - self._queues.keys():
            self._wait()
            self._queues |= queues.find_or_make(self._connection, dict.fromkeys(new_queues))
        if new_kinds := set(keys.values()) - self._kinds.keys():
            self._wait()
            made = refresh.find_or_make_kinds(self._connection, dict.fromkeys(new_kinds))
            self._kinds |= made
        return Numbers(
            {name: ids["slot", name] for name in slots},
            {name: self._queues[self._crawl, ids["slot", name]] for name in worked},
            {kind: self._kinds[key] for kind, key in keys.items()},
        )

    def _frontier_queues(self, lines: Sequence[Line]) -> None:
        ids = self._limit_ids([("slot", line["slot"]) for _, line in lines])
        places = {(self._crawl, ids["slot", line["slot"]]): None for _, line in lines}
        self._wait()
        self._queues |= queues.find_or_make(self._connection, places)
        # Dumps of before did not say so of their crawl.
        self._connection.execute(frontier_crawls.ANNOUNCE, {"crawl": self._crawl})
        rows = [
            (
                self._queues[self._crawl, ids["slot", one["slot"]]],
                self._crawl,
                one.get("delay"),
                one.get("blocked_until", 0),
                one.get("last_served", 0),
                one.get("limit"),
                one.get("completed", 0),
                one.get("is_deleting", False),
            )
            for _, one in lines
        ]
        self._copy({load_rows.QUEUES: rows})

    def _depths(self, lines: Sequence[Line]) -> None:
        said = [line for _, line in lines]
        self._wait()
        named = set(load_depths.names(said))
        owners = stored_links.creators(self._connection, self._crawl, named)
        self._copy(self._depth_rows.of(self._kind, said, owners))

    def _failures(self, lines: Sequence[Line]) -> None:
        owners = self._owners([line["item"] for _, line in lines])
        rows = [
            (
                owners[one["item"]],
                self._tasks[one["task"]],
                one.get("is_refusal", False),
                dump_lines.object_text(one, "error"),
                one["occurred_at"],
                one.get("handled_at"),
                one.get("handled_by"),
                error_fingerprints.of_stored(
                    self._tasks[one["task"]], dump_lines.text(one["error"])
                ),
            )
            for _, one in lines
        ]
        self._copy({load_rows.FAILURES: rows})

    def _scraped(self, lines: Sequence[Line]) -> None:
        owners = self._owners([line["item"] for _, line in lines if "item" in line])
        rows = [
            (
                self._crawl,
                owners[one["item"]] if "item" in one else None,
                self._tasks[one["task"]] if "task" in one else None,
                one["class"],
                dump_lines.object_text(one, "fields"),
                one["created_at"],
            )
            for _, one in lines
        ]
        self._copy({load_rows.JOURNAL: rows})

    def _owners(self, names: Sequence[str]) -> dict[str, int]:
        """Return the numbers of items that have these ids."""
        self._wait()
        keys = text_array(sorted({item_names.hex_key(name) for name in names}))
        rows = self._connection.execute(OWNERS, {"crawl": self._crawl, "keys": keys})
        return {row.name: row.item_id for row in rows}

    def _limit_ids(self, wanted: Iterable[Limit]) -> dict[Limit, int]:
        """Return the numbers of limits."""
        if missing := {one for one in wanted if one not in self._limits}:
            self._limits |= self._intern(sorted(missing))
        return self._limits

    def _copy(self, rows: Rows) -> None:
        """Begin to write rows; the next lines are read meanwhile, and made rows of."""
        self._wait()
        writing = self._writer.submit(_copy, self._connection, rows, self.counts["items"])
        self._writing = writing, self._where

    def _wait(self) -> None:
        """Wait until what was begun is written, for the connection is busy with it."""
        if self._writing is not None:
            (writing, where), self._writing = self._writing, None
            with _named(where):
                writing.result()


def _copy(connection: Connection, rows: Rows, done: int) -> None:
    engine.announce(connection, "load", done)
    driver: Any = connection.connection.driver_connection
    for table, some in rows.items():
        with driver.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN") as copy:
            for row in some:
                copy.write_row(row)


class _LoadError(OperationError):
    """An error that names its line."""


def _mistake(where: str, error: Exception) -> Exception:
    if isinstance(error, _LoadError):
        return error
    if isinstance(error, KeyError):
        return _LoadError(f"{where}: there is no {error.args[0]!r}, which it needs")
    if isinstance(error, DBAPIError | psycopg.Error):
        cause: Any = error.orig if isinstance(error, DBAPIError) else error
        if (cause.sqlstate or "")[:2] not in _OF_DATA:
            return error
        return _LoadError(f"{where}: {cause.diag.message_primary}; {cause.diag.message_detail}")
    return _LoadError(f"{where}: {error}")


@contextmanager
def _named(where: str) -> Iterator[None]:
    """Name the line in errors."""
    try:
        yield
    except _MISTAKES as error:
        raise _mistake(where, error) from None
