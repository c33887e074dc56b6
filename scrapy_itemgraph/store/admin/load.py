"""A crawl made of the lines of a dump, in one transaction: nobody sees it before it is whole.

Lines are written some thousand items at a time, by COPY, with numbers of this database's own.
"""

from __future__ import annotations

import json
from collections import deque
from contextlib import contextmanager
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import psycopg
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from scrapy_itemgraph.exceptions import ItemGraphError, OperationError
from scrapy_itemgraph.model import error_fingerprints, input_checks, item_names, periods
from scrapy_itemgraph.model.due_times import read_expiry
from scrapy_itemgraph.model.rules import Ruleset
from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.postgres.arrays import text_array
from scrapy_itemgraph.store import items as stored_items
from scrapy_itemgraph.store import queues
from scrapy_itemgraph.store.admin import dump_lines, load_rows
from scrapy_itemgraph.store.admin.load_contents import LoadedContents
from scrapy_itemgraph.store.admin.load_rows import ItemRows, Numbers, item_id, pairs
from scrapy_itemgraph.store.worklist import refresh
from scrapy_itemgraph.tools.wording import closest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Future, ThreadPoolExecutor

    from sqlalchemy import Connection

    from scrapy_itemgraph.store.admin.load_contents import Store
    from scrapy_itemgraph.store.admin.load_rows import Limit, Rows

    Intern = Callable[[Iterable[Limit]], dict[Limit, int]]
    Line = tuple[str, dict[str, Any]]  # where it stands, for errors, and what it says

STEP = 2000  # items that are written at a time,
STEP_CHARACTERS = 16_000_000  # or fewer, whose lines have so many together
_COUNTED = {"item": "items", "failure": "failures", "scraped": "scraped", "queue": "queues"}
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

SET_CRAWL = text("""
    UPDATE crawls SET arguments = CAST(:arguments AS json), created_at = :created_at,
        run = coalesce(CAST(:run AS int), 1), spider = :spider, given = CAST(:given AS json)
    WHERE id = :crawl
""")

# A run that began in the future would do again at once whatever falls due before that.
ADD_RUN = text("""
    INSERT INTO runs (crawl_id, number, spider, started_at, ended_at, is_finished, reason)
    SELECT c.id, c.run, c.spider, least(given.started, now()), least(given.finished, now()),
        given.finished IS NOT NULL, CASE WHEN given.finished IS NOT NULL THEN 'finished' END
    FROM crawls c CROSS JOIN (SELECT CAST(:run_started_at AS timestamptz) AS started,
        CAST(:run_finished_at AS timestamptz) AS finished) AS given
    WHERE c.id = :crawl AND given.started IS NOT NULL
""")

ADD_TASK = text("""
    INSERT INTO tasks (crawl_id, name, spider, version, ttl, nice, slot_id, max_failures,
        is_item_exclusive, is_enabled, is_registered, is_callback, definition, source,
        source_changed_at, limit_ids)
    VALUES (:crawl, :name, :spider, :version, CAST(:ttl AS interval), :nice, :slot, :max_failures,
        :is_item_exclusive, :is_enabled, :is_registered, :is_callback, CAST(:definition AS uuid),
        CAST(:source AS uuid), CAST(:source_changed_at AS timestamptz), CAST(:limits AS int[]))
    RETURNING id
""")

IS_POSSIBLE = text("""
    SELECT coalesce(ttl > interval '0' AND ttl <= :longest, true)
    FROM (SELECT CAST(:ttl AS interval) AS ttl) AS given
""")

ADD_SCHEDULE = text("""
    INSERT INTO task_schedules (task_id, schedule) VALUES (:task, CAST(:schedule AS json))
""")

ADD_TASK_TAGS = text("""
    INSERT INTO task_tags (crawl_id, tag_name, task_id)
    SELECT :crawl, unnest(CAST(:tags AS text[])), :task
""")

ADD_TAG_LIMIT = text("""
    INSERT INTO tag_limits (task_id, limit_id, tags) VALUES (:task, :limit, CAST(:tags AS text[]))
""")

ADD_DEPENDENCIES = text("""
    INSERT INTO task_dependencies (task_id, depends_on_id)
    SELECT :task, unnest(CAST(:tasks AS int[]))
""")

ADD_STATE = text("""
    INSERT INTO spider_state (crawl_id, key, value, changed_at)
    VALUES (:crawl, :key, CAST(:value AS json), CAST(:changed_at AS timestamptz))
""")

ADD_RULESET = text("""
    INSERT INTO rulesets (crawl_id, number, rules, created_at, created_by, note)
    VALUES (:crawl, :number, CAST(:rules AS json), CAST(:created_at AS timestamptz), :created_by,
        :note)
    RETURNING id
""")

PUT_IN_FORCE = text("UPDATE crawls SET ruleset_id = :ruleset WHERE id = :crawl")

ADD_SWEEP = text("""
    INSERT INTO sweeps (crawl_id, task_id, tags, unhold, opened_at, ruleset_id)
    VALUES (:crawl, :task, CAST(:tags AS text[]), :unhold, CAST(:opened_at AS timestamptz),
        :ruleset)
""")

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
        self._tasks: dict[str, int] = {}
        self._rulesets: dict[int, int] = {}
        self._depends: dict[str, Sequence[str]] = {}
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
            if len(self._waiting) == STEP or self._characters >= STEP_CHARACTERS:
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
        execute = self._connection.execute
        if kind == "crawl":
            given = {"crawl": self._crawl, "created_at": line["created_at"]}
            given |= {"run": line.get("run"), "spider": line.get("spider")}
            given["given"] = dump_lines.object_text(line, "given") if "given" in line else None
            execute(SET_CRAWL, given | {"arguments": dump_lines.object_text(line, "arguments")})
            moments = {name: line.get(name) for name in ("run_started_at", "run_finished_at")}
            execute(ADD_RUN, {"crawl": self._crawl, **moments})
        elif kind == "task":
            self._task(line)
        elif kind == "state":
            value = dump_lines.text(line["value"]) if "value" in line else None
            given = {"key": line["key"], "value": value, "changed_at": line["changed_at"]}
            execute(ADD_STATE, {"crawl": self._crawl, **given})
        elif kind == "ruleset":
            self._ruleset(line)
        elif kind == "sweep":
            given = {"crawl": self._crawl, "task": self._task_id(line.get("task"))}
            given |= {"tags": line["tags"], "unhold": line.get("unhold", False)}
            given |= {"ruleset": self._ruleset_id(line.get("ruleset"))}
            execute(ADD_SWEEP, given | {"opened_at": line["opened_at"]})
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
        if any(line.get(name) != count for name, count in self.counts.items()):
            raise OperationError(
                f"there should be {line}, and there are {self.counts}: lines are missing"
            )
        for name, others in self._depends.items():
            given = {"task": self._tasks[name], "tasks": [self._task_id(one) for one in others]}
            self._connection.execute(ADD_DEPENDENCIES, given)
        self._has_ended = True

    def _task(self, line: dict[str, Any]) -> None:
        tagged = line.get("tag_limits", ())
        own = pairs(line.get("limits", ()))
        limits = self._limit_ids([*own, *pairs(one["limit"] for one in tagged)])
        slot = line.get("slot")
        given = {
            "crawl": self._crawl,
            **{name: line[name] for name in ("name", "spider", "version", "definition")},
            **{name: line.get(name) for name in ("ttl", "max_failures", "source")},
            **{name: line.get(name, False) for name in ("is_item_exclusive", "is_callback")},
            **{name: line.get(name, True) for name in ("is_enabled", "is_registered")},
            "nice": line.get("nice", 0),
            "slot": None if slot is None else self._limit_ids([("slot", slot)])["slot", slot],
            "source_changed_at": line.get("source_changed_at"),
            "limits": sorted(limits[one] for one in own),
        }
        longest = {"ttl": given["ttl"], "longest": periods.LONGEST}
        if not self._connection.scalar(IS_POSSIBLE, longest):
            raise OperationError(
                f"ttl of the task {line['name']!r} is {line['ttl']!r}; a time to live is above 0, "
                "and a hundred years at most"
            )
        task = self._connection.execute(ADD_TASK, given).scalar_one()
        self._tasks[line["name"]] = task
        self._schedule(task, line.get("schedule"))
        tags = {"crawl": self._crawl, "task": task, "tags": line.get("tags", [])}
        self._connection.execute(ADD_TASK_TAGS, tags)
        for one in tagged:
            (limit,) = pairs([one["limit"]])
            given = {"task": task, "limit": limits[limit], "tags": one["tags"]}
            self._connection.execute(ADD_TAG_LIMIT, given)
        self._depends[line["name"]] = line.get("depends_on", ())

    def _schedule(self, task: int, given: Any) -> None:
        if given is not None:
            stored = {"task": task, "schedule": json.dumps(read_expiry(given).as_json())}
            self._connection.execute(ADD_SCHEDULE, stored)

    def _ruleset(self, line: dict[str, Any]) -> None:
        rules = Ruleset.read(json.loads(dump_lines.object_text(line, "rules")))
        given = {
            "crawl": self._crawl,
            "number": line["number"],
            "rules": input_checks.dump_json(rules.as_document, "rules"),
            **{name: line.get(name) for name in ("created_at", "created_by", "note")},
        }
        number = self._connection.execute(ADD_RULESET, given).scalar_one()
        self._rulesets[line["number"]] = number
        if line.get("is_in_force", False):
            self._connection.execute(PUT_IN_FORCE, {"crawl": self._crawl, "ruleset": number})

    def _ruleset_id(self, number: int | None) -> int | None:
        if number is None:
            return None
        if number not in self._rulesets:
            raise OperationError(f"the dump has no ruleset {number!r:.40}")
        return self._rulesets[number]

    def _task_id(self, name: str | None) -> int | None:
        if name is None:
            return None
        if name not in self._tasks:
            raise OperationError(f"the dump has no task {name!r}{closest(name, self._tasks)}")
        return self._tasks[name]

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
        make = ItemRows(self._crawl, self._before, self._tasks, self._contents, self._rulesets).add
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
