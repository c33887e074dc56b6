"""Changes of the code that tasks run: which results were made before, and who runs it still."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.model.tasks import Outdated
from scrapy_itemgraph.store.columns import columns, typed
from scrapy_itemgraph.store.sql_conditions import ALL_OPEN_FAILURES, IS_DEAD, IS_FRESH

if TYPE_CHECKING:
    import uuid
    from collections.abc import Collection, Mapping, Sequence

    from sqlalchemy import Connection

MANY = 1000  # counted no further

NOTE = text("""
    UPDATE tasks t SET source = seen.source,
        source_changed_at = CASE WHEN t.source IS NOT NULL THEN clock_timestamp() END
    FROM unnest(CAST(:tasks AS int[]), CAST(:sources AS uuid[])) AS seen(task_id, source)
    WHERE t.id = seen.task_id AND t.source IS DISTINCT FROM seen.source
    RETURNING t.id
""")

# What the code of before made and nothing makes again by itself.
OLD_RESULTS = text(f"""
    SELECT t.id, t.name, t.is_callback, (SELECT count(*) FROM (
        SELECT FROM results r
        WHERE r.task_id = t.id AND r.completed_at < t.source_changed_at
            AND {IS_FRESH}
        LIMIT :many) AS old) AS made
    FROM tasks t
    WHERE t.id = ANY (CAST(:tasks AS int[])) AND t.source_changed_at IS NOT NULL
    ORDER BY t.name
""")  # noqa: S608 - our own conditions

SAVE_SOURCES = text("""
    UPDATE workers SET sources = CAST(:sources AS json) WHERE id = :worker
""")

# Tasks with open failures: of a name, of some numbers, or all; then also those that are left.
FAILED_TASKS = text(f"""
    SELECT t.id, t.name, t.spider FROM tasks t
    WHERE t.crawl_id = :crawl AND (CAST(:task AS text) IS NULL OR t.name = :task)
        AND (CAST(:tasks AS int[]) IS NULL AND t.left_by <> '{{}}'
            OR (CAST(:tasks AS int[]) IS NULL OR t.id = ANY (CAST(:tasks AS int[])))
                AND EXISTS ({ALL_OPEN_FAILURES} LIMIT 1 OFFSET 0))
    ORDER BY t.name
""")  # noqa: S608 - our own condition

OLDER = text(f"""
    SELECT p.id AS worker, p.host, p.process_id, disk.task_id, t.name AS task
    FROM unnest(CAST(:tasks AS int[]), CAST(:sources AS text[])) AS disk(task_id, source)
    JOIN tasks t ON t.id = disk.task_id
    JOIN processes p ON p.crawl_id = t.crawl_id AND p.stopped_at IS NULL AND NOT {IS_DEAD}
    JOIN workers w ON w.id = p.id
    WHERE w.sources ->> t.name <> disk.source
    ORDER BY p.id, t.name
""")  # noqa: S608 - our own condition

LEAVE = text("""
    UPDATE tasks t SET left_by = ARRAY(
        SELECT o.worker FROM unnest(CAST(:tasks AS int[]), CAST(:workers AS int[]))
            AS o(task_id, worker)
        WHERE o.task_id = t.id ORDER BY o.worker)
    WHERE t.id = ANY (CAST(:all AS int[]))
""")

GO_ON_LEAVING = text("""
    UPDATE tasks SET left_by = left_by || CAST(:worker AS int)
    WHERE crawl_id = :crawl AND name = ANY (CAST(:tasks AS text[]))
""")

FORGET = text("UPDATE tasks SET source_changed_at = NULL WHERE id = ANY (CAST(:tasks AS int[]))")


class FailedTask(NamedTuple):
    """A task that has open failures: its number, its name, and its spider's."""

    id: int
    name: str
    spider: str


class OlderWorker(NamedTuple):
    """A worker that lives and runs other code of a task than is on disk."""

    worker: int
    host: str
    process_id: int
    task_id: int
    task: str


def note(connection: Connection, digests: Mapping[int, uuid.UUID]) -> list[Outdated]:
    """Remember the digests of tasks' sources, by number; return what earlier code has made."""
    given = {"tasks": list(digests), "sources": list(digests.values())}
    changed = set(connection.execute(NOTE, given).scalars())
    rows = connection.execute(OLD_RESULTS, {"tasks": list(digests), "many": MANY}).all()
    done = [row.id for row in rows if not row.made]
    if done:
        connection.execute(FORGET, {"tasks": done})
    return [
        Outdated(
            task=row.name,
            is_callback=row.is_callback,
            made=row.made,
            is_news=row.id in changed,
        )
        for row in rows
        if row.made
    ]


def save_sources(connection: Connection, worker_id: int, sources: Mapping[str, uuid.UUID]) -> None:
    """Note which code a worker runs, by the names of tasks."""
    given = {"worker": worker_id, "sources": json.dumps(sources, default=str)}
    connection.execute(SAVE_SOURCES, given)


def failed_tasks(
    connection: Connection, crawl_id: int, *, task: str | None, tasks: Sequence[int] | None
) -> list[FailedTask]:
    """Return the tasks that have open failures: of a name, of some numbers, or of all the crawl."""
    given = {"crawl": crawl_id, "task": task, "tasks": tasks}
    return typed(connection.execute(FAILED_TASKS, given), FailedTask)


def leave_none(connection: Connection, tasks: Sequence[FailedTask]) -> None:
    """Let every worker take the work of tasks."""
    none: list[int] = []
    given = {"tasks": none, "workers": none, "all": [one.id for one in tasks]}
    connection.execute(LEAVE, given)


def leave(connection: Connection, sources: Mapping[int, uuid.UUID]) -> list[OlderWorker]:
    """Have living workers of other code leave the work of tasks alone; return them.

    `sources` are digests of the code that these tasks are to run, by their numbers.
    """
    if not sources:
        return []
    given = {"tasks": list(sources), "sources": [str(one) for one in sources.values()]}
    found = typed(connection.execute(OLDER, given), OlderWorker)
    which = columns(found, tasks="task_id", workers="worker")
    connection.execute(LEAVE, {**which, "all": list(sources)})
    return found


def go_on_leaving(
    connection: Connection, crawl_id: int, worker_id: int, tasks: Collection[str]
) -> None:
    """Have a worker leave tasks alone that it left before, under another number."""
    if tasks:
        given = {"crawl": crawl_id, "worker": worker_id, "tasks": list(tasks)}
        connection.execute(GO_ON_LEAVING, given)
