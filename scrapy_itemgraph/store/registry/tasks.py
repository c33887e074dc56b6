"""Tasks: what a start registers of a crawl's, and the sweeps that it opens for what changed."""

from __future__ import annotations

import hashlib
import json
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.exceptions import ConfigurationError
from scrapy_itemgraph.model import frontier, slots
from scrapy_itemgraph.model.tasks import RegisteredTask
from scrapy_itemgraph.store.columns import typed
from scrapy_itemgraph.store.limits import declared as declared_limits
from scrapy_itemgraph.store.limits.declared import TaskLimits
from scrapy_itemgraph.store.queues import wake_crawl
from scrapy_itemgraph.store.registry.crawls import own_crawl
from scrapy_itemgraph.store.registry.item_sweeps import open_sweep
from scrapy_itemgraph.store.slots import intern_slots

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from datetime import timedelta

    from sqlalchemy import Connection

    from scrapy_itemgraph.model.limits import Limit
    from scrapy_itemgraph.model.tasks import Task


TASKS = text("""
    SELECT t.id, t.name, t.spider, t.version, t.definition, t.is_registered, t.is_callback,
        ARRAY(SELECT tt.tag_name FROM task_tags tt WHERE tt.task_id = t.id) AS tags
    FROM tasks t WHERE t.crawl_id = :crawl ORDER BY t.id
""")

SAVE_TASK = text("""
    INSERT INTO tasks (crawl_id, name, spider, version, ttl, nice, slot_id, max_failures,
        is_item_exclusive, is_callback, definition)
    VALUES (:crawl, :name, :spider, :version, :ttl, :nice, :slot, :max_failures, :exclusive,
        :is_callback, :definition)
    ON CONFLICT (crawl_id, name) DO UPDATE SET spider = excluded.spider,
        version = excluded.version, ttl = excluded.ttl, nice = excluded.nice,
        slot_id = excluded.slot_id, max_failures = excluded.max_failures,
        is_item_exclusive = excluded.is_item_exclusive, is_callback = excluded.is_callback,
        definition = excluded.definition, is_registered = true
    RETURNING id
""")
# A callback that became a @task keeps its requests, under another name, and they fail visibly.
SET_ASIDE = text("""
    UPDATE tasks t SET name = 'callback.' || t.name
    WHERE t.crawl_id = :crawl AND t.is_callback AND t.name = ANY (CAST(:names AS text[]))
        AND NOT EXISTS (SELECT FROM tasks x
            WHERE x.crawl_id = t.crawl_id AND x.name = 'callback.' || t.name)
""")
DROP_TAGS = text("DELETE FROM task_tags WHERE task_id = :task")
ADD_TAGS = text("""
    INSERT INTO task_tags (crawl_id, tag_name, task_id)
    SELECT :crawl, unnest(CAST(:tags AS text[])), :task
""")
DROP_DEPENDENCIES = text("DELETE FROM task_dependencies WHERE task_id = :task")
ADD_DEPENDENCIES = text("""
    INSERT INTO task_dependencies (task_id, depends_on_id)
    SELECT :task, unnest(CAST(:on AS int[]))
""")
DROP_SCHEDULE = text("DELETE FROM task_schedules WHERE task_id = :task")
ADD_SCHEDULE = text("""
    INSERT INTO task_schedules (task_id, schedule) VALUES (:task, CAST(:schedule AS json))
""")
MAKE_KIND = text("INSERT INTO kinds (task_id) VALUES (:task) ON CONFLICT DO NOTHING")
UNREGISTER = text("UPDATE tasks SET is_registered = false WHERE id = :task")
# A frontier's task stays when a spider drops it, for other crawlers go on. Its results stay fresh.
GIVE_BACK = text("""
    UPDATE tasks t SET spider = :spider, definition = :definition, slot_id = NULL,
        max_failures = NULL, is_item_exclusive = false
    FROM crawls c
    WHERE t.id = :task AND t.name = :name AND c.id = t.crawl_id AND c.frontier IS NOT NULL
""")
HAS_RESULTS = text("""
    SELECT EXISTS (SELECT FROM task_tags tt
        JOIN tags g ON g.crawl_id = tt.crawl_id AND g.tag_name = tt.tag_name
        JOIN results r ON r.item_id = g.item_id AND r.task_id = tt.task_id
        WHERE tt.task_id = :task)
""")
SET_ENABLED = text("UPDATE tasks SET is_enabled = :enabled WHERE id = :task")


OUTDATED = text("""
    SELECT t.name, :worker = ANY (t.left_by) AS is_left
    FROM unnest(CAST(:tasks AS int[]), CAST(:definitions AS uuid[])) AS mine(task_id, definition)
    JOIN tasks t ON t.id = mine.task_id
    WHERE t.definition <> mine.definition OR NOT t.is_registered OR :worker = ANY (t.left_by)
""")


@dataclass(frozen=True, kw_only=True)
class Registration:
    """What registering a spider's tasks gave: ids by name, and what a person should know."""

    tasks: dict[int, RegisteredTask]
    limits: TaskLimits = field(default_factory=TaskLimits)
    callbacks: frozenset[str] = frozenset()
    changed: tuple[str, ...] = ()
    vanished: tuple[str, ...] = field(default=())


class KnownTask(NamedTuple):
    """A task of a crawl as it is stored."""

    id: int
    name: str
    spider: str
    version: str
    definition: uuid.UUID
    is_registered: bool
    is_callback: bool
    tags: list[str]


def known_tasks(connection: Connection, crawl_id: int) -> list[KnownTask]:
    """Return the crawl's tasks."""
    return typed(connection.execute(TASKS, {"crawl": crawl_id}), KnownTask)


def set_enabled(connection: Connection, crawl_id: int, task_id: int, *, enabled: bool) -> None:
    """Let a task's work be claimed, or not."""
    connection.execute(SET_ENABLED, {"task": task_id, "enabled": enabled})
    if enabled:
        wake_crawl(connection, crawl_id)


def register_tasks(
    connection: Connection,
    crawl_id: int,
    spider: str,
    tasks: Mapping[str, Task],
    default_ttl: timedelta | None,
    *,
    of_callback: Callable[[str], Task] | None = None,
    limits_of: Callable[[Task], Sequence[Limit]] = lambda _: (),
    of_all: Sequence[Limit] = (),
    outdated: Collection[str] = (),
) -> Registration:
    """Make the tasks in force those that the code declares, and open sweeps for what changed.

    `of_callback` returns the task of a plain callback that has had requests, `limits_of` what the
    work of a task keeps to, `of_all` is what every request keeps to. `outdated` are tasks that a
    later start declared otherwise: what is there of them stays.

    Raises:
        ConfigurationError: when the crawl has requests of another spider.

    """
    own_crawl(connection, crawl_id)
    connection.execute(SET_ASIDE, {"crawl": crawl_id, "names": list(tasks)})
    known = {row.name: row for row in known_tasks(connection, crawl_id)}
    callbacks = frozenset(_callbacks(known.values(), spider) - tasks.keys())
    if of_callback is not None:
        tasks = {**tasks, **{name: of_callback(name) for name in sorted(callbacks)}}
    pinned = [_slot(one) for one in tasks.values()]
    slot_ids = intern_slots(connection, [slot for slot in pinned if slot is not None])
    registered: dict[int, RegisteredTask] = {}
    kept = {name: limits_of(one) for name, one in tasks.items()}
    changed: list[str] = []
    for one in _dependencies_first(tasks):
        definition = define(one, spider, default_ttl)
        before = known.get(one.name)
        is_known = before is not None and before.definition == definition and before.is_registered
        if before is not None and (is_known or one.name in outdated):
            registered[before.id] = _registered(one, definition)
            continue
        columns = _columns(one, default_ttl, slot_ids)
        columns |= {"crawl": crawl_id, "spider": spider, "definition": definition}
        task_id = connection.execute(SAVE_TASK, columns).scalar_one()
        registered[task_id] = _registered(one, definition)
        _connect(connection, crawl_id, task_id, one, registered)
        _sweep_change(connection, crawl_id, task_id, one, before)
        changed.append(one.name)
    vanished = []
    for row in known.values():
        if row.spider == spider and row.is_registered and row.name not in tasks:
            if _give_back(connection, crawl_id, row):
                changed.append(row.name)
                continue
            _unregister(connection, crawl_id, row)
            if connection.execute(HAS_RESULTS, {"task": row.id}).scalar_one():
                vanished.append(row.name)
    if changed or vanished:
        wake_crawl(connection, crawl_id)
    declared = {
        task_id: kept[one.name] for task_id, one in registered.items() if one.name not in outdated
    }
    return Registration(
        tasks=registered,
        limits=declared_limits.register(connection, declared, of_all=of_all),
        callbacks=callbacks,
        changed=tuple(changed),
        vanished=tuple(vanished),
    )


def _registered(task: Task, definition: uuid.UUID) -> RegisteredTask:
    return RegisteredTask(
        task.name,
        task.version,
        definition,
        revalidates=task.keeps_validators,
        has_request=task.request is not None,
    )


def are_in_force(
    connection: Connection,
    crawl_id: int,
    spider: str,
    tasks: Mapping[str, Task],
    default_ttl: timedelta | None,
) -> bool:
    """Tell whether the tasks in force are those that the code declares, plain callbacks aside."""
    declared = {name: define(one, spider, default_ttl) for name, one in tasks.items()}
    known = [one for one in known_tasks(connection, crawl_id) if one.is_registered]
    stored = {one.name: one.definition for one in known if not one.is_callback}
    others = {one.name for one in known if one.spider != spider}
    return declared == {name: one for name, one in stored.items() if name not in others}


def _callbacks(known: Iterable[KnownTask], spider: str) -> set[str]:
    """Return the callbacks that have had requests; a crawl has those of one spider only."""
    callbacks = [row for row in known if row.is_callback and row.is_registered]
    for row in callbacks:
        if row.spider != spider:
            raise ConfigurationError(
                f"this crawl has requests of the spider {row.spider!r} (callback {row.name}); "
                f"give the spider {spider!r} a crawl of its own with ITEMGRAPH_CRAWL, or delete "
                "the other's with: scrapy itemgraph restart CRAWL --yes"
            )
    return {row.name for row in callbacks}


def register_callbacks(
    connection: Connection,
    crawl_id: int,
    spider: str,
    tasks: Iterable[Task],
    default_ttl: timedelta | None,
) -> dict[int, RegisteredTask]:
    """Register plain callbacks met for the first time; what a worker registered before stays.

    Raises:
        ConfigurationError: when the crawl has a task or requests of another spider by that name.

    """
    own_crawl(connection, crawl_id)
    known = {row.name: row for row in known_tasks(connection, crawl_id)}
    _callbacks(known.values(), spider)
    for one in tasks:
        there = known.get(one.name)
        if there is not None and there.is_registered and not there.is_callback:
            raise ConfigurationError(
                f"the callback {one.name} has the name of a task of the spider {there.spider!r} in "
                "this crawl; rename one of them, or set ITEMGRAPH_CRAWL"
            )
        if there is not None and there.is_registered:
            continue
        columns = _columns(one, default_ttl, {})
        definition = define(one, spider, default_ttl)
        columns |= {"crawl": crawl_id, "spider": spider, "definition": definition}
        task_id = connection.execute(SAVE_TASK, columns).scalar_one()
        _connect(connection, crawl_id, task_id, one, {})
        if there is not None:
            open_sweep(connection, crawl_id, task_id)
    return known_callbacks(connection, crawl_id, spider)


def known_callbacks(
    connection: Connection, crawl_id: int, spider: str
) -> dict[int, RegisteredTask]:
    """Return the plain callbacks of a spider that have had requests, as they are registered."""
    return {
        row.id: RegisteredTask(row.name, row.version, row.definition)
        for row in known_tasks(connection, crawl_id)
        if row.is_callback and row.is_registered and row.spider == spider
    }


def _dependencies_first(tasks: Mapping[str, Task]) -> list[Task]:
    ordered: dict[str, Task] = {}

    def visit(one: Task) -> None:
        for name in one.depends_on:
            visit(tasks[name])
        ordered[one.name] = one

    for one in tasks.values():
        visit(one)
    return list(ordered.values())


def _slot(one: Task) -> str | None:
    """Return the slot that a task fixes; without a download there is none to be polite to."""
    return one.slot if one.download else slots.NONE


def define(one: Task, spider: str, default_ttl: timedelta | None) -> uuid.UUID:
    """Return a digest of all that the code declares of a task."""
    declared = [
        spider,
        one.name,
        one.version,
        sorted(one.tags),
        sorted(one.depends_on),
        str(_ttl(one, default_ttl)),
        one.nice,
        _slot(one),
        one.max_failures,
        one.exclusive,
        one.is_callback,
        sorted(one.rate_limit_by_tag),
    ]
    if one.expiry is not None:  # others have the digest that they had before there was one
        declared.append(one.expiry.as_json())
    return uuid.UUID(bytes=hashlib.sha256(json.dumps(declared).encode()).digest()[:16])


def _ttl(one: Task, default_ttl: timedelta | None) -> timedelta | None:
    if one.ttl is None:
        return None if one.expiry is not None else default_ttl
    return None if one.ttl == "never" else one.ttl


def _columns(
    one: Task, default_ttl: timedelta | None, slot_ids: Mapping[str, int]
) -> dict[str, Any]:
    slot = _slot(one)
    return {
        "name": one.name,
        "version": one.version,
        "ttl": _ttl(one, default_ttl),
        "nice": one.nice,
        "slot": None if slot is None else slot_ids[slot],
        "max_failures": one.max_failures,
        "exclusive": one.exclusive == "item",
        "is_callback": one.is_callback,
    }


def _connect(
    connection: Connection,
    crawl_id: int,
    task_id: int,
    one: Task,
    registered: Mapping[int, RegisteredTask],
) -> None:
    ids = {one.name: known_id for known_id, one in registered.items()}
    connection.execute(DROP_TAGS, {"task": task_id})
    connection.execute(ADD_TAGS, {"crawl": crawl_id, "task": task_id, "tags": list(one.tags)})
    connection.execute(DROP_DEPENDENCIES, {"task": task_id})
    connection.execute(
        ADD_DEPENDENCIES, {"task": task_id, "on": [ids[name] for name in one.depends_on]}
    )
    connection.execute(DROP_SCHEDULE, {"task": task_id})
    if one.expiry is not None:
        schedule = json.dumps(one.expiry.as_json())
        connection.execute(ADD_SCHEDULE, {"task": task_id, "schedule": schedule})
    connection.execute(MAKE_KIND, {"task": task_id})


def _sweep_change(
    connection: Connection, crawl_id: int, task_id: int, one: Task, before: KnownTask | None
) -> None:
    bumped = before is not None and before.version != one.version
    open_sweep(
        connection,
        crawl_id,
        task_id,
        tags=() if before is None else before.tags,
        unhold=bumped and one.retry_failed_on_version_bump,
    )


def _give_back(connection: Connection, crawl_id: int, row: KnownTask) -> bool:
    """Give the frontier of the crawl its task back, if it is that."""
    given = {"task": row.id, "name": frontier.TASK, "spider": frontier.SPIDER}
    is_its = connection.execute(GIVE_BACK, {**given, "definition": frontier.DEFINITION}).rowcount
    if is_its:
        for statement in (DROP_TAGS, DROP_DEPENDENCIES, DROP_SCHEDULE):
            connection.execute(statement, {"task": row.id})
        called = {"crawl": crawl_id, "task": row.id, "tags": [frontier.TAG]}
        connection.execute(ADD_TAGS, called)
        open_sweep(connection, crawl_id, row.id, tags=row.tags)
    return bool(is_its)


def _unregister(connection: Connection, crawl_id: int, row: KnownTask) -> None:
    connection.execute(UNREGISTER, {"task": row.id})
    open_sweep(connection, crawl_id, row.id)


def outdated(
    connection: Connection, worker_id: int, tasks: Mapping[int, RegisteredTask]
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of tasks that this worker leaves to others.

    Those that a later start declares otherwise, and those of which there is newer code.
    """
    definitions = [one.definition for one in tasks.values()]
    given = {"worker": worker_id, "tasks": list(tasks), "definitions": definitions}
    rows = connection.execute(OUTDATED, given).all()
    left = frozenset(row.name for row in rows if row.is_left)
    return frozenset(row.name for row in rows) - left, left
