"""What a dump declares before its items: the crawl, its tasks, state, rules and open sweeps."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.model import input_checks, periods
from scrapy_itemgraph.model.due_times import read_expiry
from scrapy_itemgraph.model.rules import Ruleset
from scrapy_itemgraph.store.admin import dump_lines, load_depths
from scrapy_itemgraph.store.admin.load_rows import pairs
from scrapy_itemgraph.tools.wording import closest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sqlalchemy import Connection

    from scrapy_itemgraph.store.admin.load_rows import Limit

SET_CRAWL = text("""
    UPDATE crawls SET arguments = CAST(:arguments AS json), created_at = :created_at,
        run = coalesce(CAST(:run AS int), 1), spider = :spider, given = CAST(:given AS json),
        dripfeed = CAST(:dripfeed AS int), tracks_depth = :tracks_depth,
        depth_limit = CAST(:depth_limit AS int), is_depth_limit_set = :is_depth_limit_set,
        frontier = CAST(:frontier AS smallint)
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


_OF_DEPTHS = ("tracks_depth", "is_depth_limit_set")
_PLAIN = ("run", "spider", "dripfeed", "depth_limit", "frontier")


class Declared:
    """Writes such lines of one dump, and has the numbers of what they made.

    `tasks` are those of tasks by their names, `rulesets` those of rulesets by theirs in the crawl.
    `limit_ids` returns at least the numbers of the limits that it is asked for.
    """

    def __init__(
        self,
        connection: Connection,
        crawl_id: int,
        limit_ids: Callable[[Iterable[Limit]], dict[Limit, int]],
    ) -> None:
        self._connection = connection
        self._crawl = crawl_id
        self._limit_ids = limit_ids
        self.tasks: dict[str, int] = {}
        self.rulesets: dict[int, int] = {}
        self._depends: dict[str, Sequence[str]] = {}
        self.kinds: dict[str, Callable[[dict[str, Any]], None]] = {
            "crawl": self._set_crawl,
            "task": self._task,
            "state": self._state,
            "ruleset": self._ruleset,
            "sweep": self._sweep,
            "depth_sweep": self._depth_sweep,
        }

    def add(self, kind: str, line: dict[str, Any]) -> None:
        """Write a line of one of the `kinds`."""
        self.kinds[kind](line)

    def end(self) -> None:
        """Write which tasks wait for which, now that all are there."""
        for name, others in self._depends.items():
            given = {"task": self.tasks[name], "tasks": [self._task_id(one) for one in others]}
            self._connection.execute(ADD_DEPENDENCIES, given)

    def _set_crawl(self, line: dict[str, Any]) -> None:
        given = {"crawl": self._crawl, "created_at": line["created_at"]}
        given |= {name: line.get(name) for name in _PLAIN}
        given |= {name: line.get(name, False) for name in _OF_DEPTHS}
        given["given"] = dump_lines.object_text(line, "given") if "given" in line else None
        given["arguments"] = dump_lines.object_text(line, "arguments")
        self._connection.execute(SET_CRAWL, given)
        moments = {name: line.get(name) for name in ("run_started_at", "run_finished_at")}
        self._connection.execute(ADD_RUN, {"crawl": self._crawl, **moments})

    def _state(self, line: dict[str, Any]) -> None:
        value = dump_lines.text(line["value"]) if "value" in line else None
        given = {"key": line["key"], "value": value, "changed_at": line["changed_at"]}
        self._connection.execute(ADD_STATE, {"crawl": self._crawl, **given})

    def _sweep(self, line: dict[str, Any]) -> None:
        given = {"crawl": self._crawl, "task": self._task_id(line.get("task"))}
        given |= {"tags": line["tags"], "unhold": line.get("unhold", False)}
        given |= {"ruleset": self._ruleset_id(line.get("ruleset"))}
        self._connection.execute(ADD_SWEEP, given | {"opened_at": line["opened_at"]})

    def _depth_sweep(self, line: dict[str, Any]) -> None:
        load_depths.add_sweep(self._connection, self._crawl, line)

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
        self.tasks[line["name"]] = task
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
        self.rulesets[int(line["number"])] = number
        if line.get("is_in_force", False):
            self._connection.execute(PUT_IN_FORCE, {"crawl": self._crawl, "ruleset": number})

    def _ruleset_id(self, number: int | str | None) -> int | None:
        if number is None:
            return None
        if int(number) not in self.rulesets:
            raise OperationError(f"the dump has no ruleset {number!r:.40}")
        return self.rulesets[int(number)]

    def _task_id(self, name: str | None) -> int | None:
        if name is None:
            return None
        if name not in self.tasks:
            raise OperationError(f"the dump has no task {name!r}{closest(name, self.tasks)}")
        return self.tasks[name]
