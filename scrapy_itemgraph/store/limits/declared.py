"""Task limits: what the work of tasks keeps to, as the code and the settings declare it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.model import limits
from scrapy_itemgraph.store.columns import columns
from scrapy_itemgraph.store.slots import intern_limits, lock_limits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection

    from scrapy_itemgraph.model.limits import Limit

TASK_NAMES = text("SELECT DISTINCT t.name FROM tasks t WHERE t.is_registered")

DECLARE = text("""
    UPDATE limits l SET gap = declared.gap, concurrency = declared.concurrency
    FROM unnest(CAST(:limits AS int[]), CAST(:gaps AS float8[]), CAST(:concurrencies AS int[]))
        AS declared(id, gap, concurrency)
    WHERE l.id = declared.id
        AND (l.gap, l.concurrency) IS DISTINCT FROM (declared.gap, declared.concurrency)
""")

SET_LIMITS = text("""
    UPDATE tasks t SET limit_ids = CAST(:limits AS int[])
    WHERE t.id = :task AND t.limit_ids <> CAST(:limits AS int[])
""")

DROP_TAG_LIMITS = text("""
    DELETE FROM tag_limits WHERE task_id = :task AND limit_id <> ALL (CAST(:limits AS int[]))
""")

ADD_TAG_LIMIT = text("""
    INSERT INTO tag_limits (task_id, limit_id, tags)
    VALUES (:task, :limit, CAST(:tags AS text[])) ON CONFLICT DO NOTHING
""")


@dataclass(frozen=True, kw_only=True)
class TaskLimits:
    """The limits of a worker's tasks, by their numbers; of a task those that all its work keeps."""

    declared: dict[int, Limit] = field(default_factory=dict)
    of_task: dict[int, tuple[int, ...]] = field(default_factory=dict)
    of_tags: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def update(self, other: TaskLimits) -> None:
        """Take up the limits of more tasks."""
        self.declared.update(other.declared)
        self.of_task.update(other.of_task)
        self.of_tags.update(other.of_tags)


def register(
    connection: Connection, declared: Mapping[int, Sequence[Limit]], *, of_all: Sequence[Limit] = ()
) -> TaskLimits:
    """Save the limits of tasks, given by the tasks' numbers, and those of all requests."""
    numbered = number(connection, declared, of_all=of_all)
    known = numbered.declared
    if known:
        lock_limits(connection, known)
        given = columns(known.values(), gaps="gap", concurrencies="concurrency")
        connection.execute(DECLARE, {"limits": list(known), **given})
    for task in sorted(declared):
        tagged = numbered.of_tags[task]
        connection.execute(SET_LIMITS, {"task": task, "limits": list(numbered.of_task[task])})
        connection.execute(DROP_TAG_LIMITS, {"task": task, "limits": list(tagged)})
        for limit in tagged:
            row = {"task": task, "limit": limit, "tags": list(known[limit].tags)}
            connection.execute(ADD_TAG_LIMIT, row)
    return numbered


def number(
    connection: Connection, declared: Mapping[int, Sequence[Limit]], *, of_all: Sequence[Limit] = ()
) -> TaskLimits:
    """Return the numbers of the same limits, made when they are new; else nothing is saved."""
    given_to = [of_all, *declared.values()]
    every = {(one.kind, one.name): one for limits_ in given_to for one in limits_}
    numbers = intern_limits(connection, every)
    numbered = TaskLimits(declared={numbers[key]: one for key, one in every.items()})
    for task, own in declared.items():
        tagged = {numbers[one.kind, one.name] for one in own if one.kind == limits.TAGS}
        plain = {numbers[one.kind, one.name] for one in own} - tagged
        numbered.of_task[task] = tuple(sorted(plain))
        numbered.of_tags[task] = tuple(sorted(tagged))
    return numbered


def task_names(connection: Connection) -> set[str]:
    """Return the names of all tasks of all crawls."""
    return set(connection.execute(TASK_NAMES).scalars())
