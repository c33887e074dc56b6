"""Failures: attempts that ended in an error, open until somebody handles them.

The items are locked by the caller.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.model import error_fingerprints
from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store.columns import columns, typed

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime
    from uuid import UUID

    from sqlalchemy import Connection

    from scrapy_itemgraph.model.work import ErrorRecord, Pair

MAX_ID = 2**63 - 1

# The columns by which people know an item `i` that is a request: its URL and method.
PAGE = """
        CASE WHEN json_typeof(i.data->'url') = 'string' THEN i.data->>'url' END AS url,
        CASE WHEN json_typeof(i.data->'request') = 'object'
            THEN coalesce(i.data->'request'->>'method', 'GET') END AS method"""

# Holds results of one crawl; one that is not there yet is made, never run.
HOLD = text("""
    INSERT INTO results (item_id, task_id, task_version, is_successful, is_held, created_at, run)
    SELECT item_id, task_id, task_version, false, true, clock_timestamp(),
        (SELECT c.run FROM tasks t JOIN crawls c ON c.id = t.crawl_id
            WHERE t.id = (CAST(:tasks AS int[]))[1])
    FROM unnest(CAST(:items AS bigint[]), CAST(:tasks AS int[]), CAST(:versions AS text[]))
        AS failed(item_id, task_id, task_version)
    ON CONFLICT (item_id, task_id) DO UPDATE SET is_successful = false, is_held = true,
        run = excluded.run
""")

RECORD = text("""
    INSERT INTO failures (item_id, task_id, is_refusal, error, handled_at, handled_by, fingerprint)
    SELECT item_id, task_id, is_refusal, CAST(error AS json),
        CASE WHEN handled_by IS NOT NULL THEN now() END, handled_by, fingerprint
    FROM unnest(CAST(:items AS bigint[]), CAST(:tasks AS int[]), CAST(:refusals AS bool[]),
        CAST(:errors AS text[]), CAST(:handlers AS text[]), CAST(:fingerprints AS uuid[]))
        AS failed(item_id, task_id, is_refusal, error, handled_by, fingerprint)
""")

# A pair's failures are looked up first, and then which of them are open. OFFSET 0 and IS TRUE keep
# the index of open failures out: PostgreSQL 16 and 17 would read all of them there.
SUPERSEDE = text("""
    UPDATE failures SET handled_at = now(), handled_by = :by
    WHERE (handled_at IS NULL) IS TRUE AND ctid = ANY (ARRAY(
        SELECT f.ctid
        FROM unnest(CAST(:items AS bigint[]), CAST(:tasks AS int[])) AS done(item_id, task_id)
        CROSS JOIN LATERAL (
            SELECT x.ctid, x.handled_at FROM failures x
            WHERE x.item_id = done.item_id AND x.task_id = done.task_id OFFSET 0) AS f
        WHERE f.handled_at IS NULL))
""")

REPOINT = text("""
    UPDATE failures f SET item_id = moved.into_id
    FROM unnest(CAST(:items AS bigint[]), CAST(:tasks AS int[]), CAST(:into AS bigint[]))
        AS moved(item_id, task_id, into_id)
    WHERE f.item_id = moved.item_id AND f.task_id = moved.task_id
""")

# Open failures, the oldest first: of one number, of a task, or of all the crawl's tasks. Each task
# has its failures and its refusals in this order in an index, and the first of each are compared.
# Compared as rows: where one task has all failures, equal tasks and an order by number would let
# the planner look for another's by going through all numbers.
OPEN = text(f"""
    SELECT f.id, f.item_id, f.task_id, f.task, i.name AS item, {PAGE}, f.is_refusal, f.error,
        f.occurred_at, CAST('[]' AS json) AS log
    FROM (
        SELECT f.*, t.name AS task FROM tasks t
        CROSS JOIN (VALUES (false), (true)) AS kind(is_refusal)
        CROSS JOIN LATERAL (
            SELECT f.* FROM failures f
            WHERE f.handled_at IS NULL
                AND (f.task_id, f.is_refusal, f.id) >= (t.id, kind.is_refusal, :first)
                AND (f.task_id, f.is_refusal, f.id) <= (t.id, kind.is_refusal, :last)
            ORDER BY f.task_id, f.is_refusal, f.id
            LIMIT :limit) AS f
        WHERE t.crawl_id = :crawl
            AND (CAST(:task AS text) IS NULL OR t.name = :task)
        ORDER BY f.id
        LIMIT :limit) f
    JOIN items i ON i.id = f.item_id
    ORDER BY f.id
""")  # noqa: S608 - our own columns

# Open failures that are alike, the oldest first.
OF_GROUP = text(f"""
    SELECT f.id, f.item_id, f.task_id, t.name AS task, i.name AS item, {PAGE}, f.is_refusal,
        f.error, f.occurred_at, CAST('[]' AS json) AS log
    FROM (
        SELECT f.* FROM failures f
        WHERE f.handled_at IS NULL
            AND (f.fingerprint, f.id) >= (CAST(:group AS uuid), :first)
            AND (f.fingerprint, f.id) <= (CAST(:group AS uuid), :last)
        ORDER BY f.fingerprint, f.id LIMIT :limit) AS f
    JOIN tasks t ON t.id = f.task_id AND t.crawl_id = :crawl
        AND (CAST(:task AS text) IS NULL OR t.name = :task)
    JOIN items i ON i.id = f.item_id
    ORDER BY f.id
""")  # noqa: S608 - our own columns

NEWEST = text("SELECT coalesce(max(id), 0) FROM failures")

# Failures that a person handled since a moment, while of their pairs nothing ran since, and nobody
# stored a result or expired it: that is a later word. A successful result came with a merge.
UNDOABLE = text("""
    SELECT f.id, f.item_id, f.task_id FROM failures f JOIN tasks t ON t.id = f.task_id
    WHERE f.handled_at >= :since AND f.handled_by = :by AND t.crawl_id = :crawl
        AND (CAST(:task AS text) IS NULL OR t.name = :task)
        AND (CAST(:failure AS bigint) IS NULL OR f.id = :failure)
        AND (CAST(:group AS uuid) IS NULL OR f.fingerprint = :group)
        AND NOT EXISTS (
            SELECT FROM attempts a
            WHERE a.item_id = f.item_id AND a.task_id = f.task_id AND a.ended_at > f.handled_at
                AND a.outcome <> 'released')
        AND NOT EXISTS (
            SELECT FROM results r
            WHERE r.item_id = f.item_id AND r.task_id = f.task_id
                AND (r.is_successful
                    OR greatest(r.completed_at, r.invalidated_at) > f.handled_at))
        AND NOT EXISTS (
            SELECT FROM work w
            WHERE w.item_id = f.item_id AND w.task_id = f.task_id AND w.token IS NOT NULL)
    ORDER BY f.id LIMIT :limit
""")

REOPEN = text("""
    UPDATE failures SET handled_at = NULL, handled_by = NULL
    WHERE id = ANY (CAST(:failures AS bigint[]))
""")

HOLD_AGAIN = text("""
    UPDATE results r SET is_held = true
    FROM unnest(CAST(:items AS bigint[]), CAST(:tasks AS int[])) AS opened(item_id, task_id)
    WHERE r.item_id = opened.item_id AND r.task_id = opened.task_id
""")

# What the attempts logged that failed: each ended in the transaction that wrote its failure.
LOGS = text("""
    SELECT f.id, a.log
    FROM failures f
    CROSS JOIN LATERAL (
        SELECT a.log FROM attempts a
        WHERE a.item_id = f.item_id AND a.task_id = f.task_id
            AND a.ended_at = f.occurred_at AND a.outcome IN ('failed', 'refused')
        ORDER BY a.id DESC LIMIT 1) AS a
    WHERE f.id = ANY (CAST(:failures AS bigint[])) AND a.log IS NOT NULL
""")

UNHOLD = text("""
    UPDATE results r SET is_held = false
    FROM unnest(CAST(:items AS bigint[]), CAST(:tasks AS int[])) AS handled(item_id, task_id)
    WHERE r.item_id = handled.item_id AND r.task_id = handled.task_id
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A pair that failed, and its error.

    `handled_by` is set when what came after it was known at once: the pair had been expired while
    it was claimed, or something in the same commit handled the failure.
    """

    item_id: int
    task_id: int
    version: str
    error: ErrorRecord | None
    is_refusal: bool = False
    handled_by: str | None = None


class OpenFailure(NamedTuple):
    """A failure or refusal that nobody has handled; `url` and `method` are those of a request.

    `log` is what its attempt logged, as that has it, where it was asked for.
    """

    id: int
    item_id: int
    task_id: int
    task: str
    item: str
    url: str | None
    method: str | None
    is_refusal: bool
    error: dict[str, Any]
    occurred_at: datetime
    log: list[dict[str, Any]]


def record(connection: Connection, failed: Sequence[Failed]) -> None:
    """Hold these pairs and write their failures."""
    if failed:
        given = columns(failed, items="item_id", tasks="task_id", versions="version")
        connection.execute(HOLD, given)
        write(connection, failed)


def write(connection: Connection, failed: Sequence[Failed]) -> None:
    """Write the failures of pairs whose results tell already that they are held."""
    if failed:
        given = columns(
            failed,
            items="item_id",
            tasks="task_id",
            refusals="is_refusal",
            handlers="handled_by",
        )
        given["errors"] = [f.error.as_json() if f.error else "{}" for f in failed]
        given["fingerprints"] = [error_fingerprints.of_error(f.task_id, f.error) for f in failed]
        connection.execute(RECORD, given)


def supersede(connection: Connection, pairs: Collection[Pair], by: str = "superseded") -> None:
    """Mark the open failures of these pairs as handled."""
    if pairs:
        connection.execute(SUPERSEDE, {**columns(pairs, items=0, tasks=1), "by": by})


def repoint(connection: Connection, moved: Collection[tuple[int, int, int]]) -> None:
    """Move the failures of (item, task) to another item, where the result went."""
    if moved:
        connection.execute(REPOINT, columns(moved, items=0, tasks=1, into=2))


def unhold(connection: Connection, pairs: Collection[Pair]) -> None:
    """Let these pairs run again where they are outstanding."""
    if pairs:
        connection.execute(UNHOLD, columns(pairs, items=0, tasks=1))


def opened(
    connection: Connection,
    crawl_id: int,
    *,
    task: str | None = None,
    failure: int | None = None,
    group: UUID | None = None,
    after: int = 0,
    last: int = MAX_ID,
    limit: int = 1000,
) -> list[OpenFailure]:
    """Return open failures, the oldest first: one, a task's, a group's.

    They come `after` a number, up to the `last`.
    """
    engine.hot_path(connection)
    first, last = (after + 1, last) if failure is None else (failure, failure)
    given = {"crawl": crawl_id, "task": task, "first": first, "last": last, "limit": limit}
    if group is not None:
        return typed(connection.execute(OF_GROUP, {**given, "group": group}), OpenFailure)
    return typed(connection.execute(OPEN, given), OpenFailure)


def newest(connection: Connection) -> int:
    """Return the number of the failure that was recorded last, of any crawl; 0: there is none."""
    number: int = connection.execute(NEWEST).scalar_one()
    return number


class HandledFailure(NamedTuple):
    """A failure that was handled, and the pair that it is of."""

    id: int
    item_id: int
    task_id: int


def undoable(
    connection: Connection,
    crawl_id: int,
    since: datetime,
    *,
    by: str,
    task: str | None = None,
    failure: int | None = None,
    group: UUID | None = None,
    limit: int = 1000,
) -> list[HandledFailure]:
    """Return failures that somebody handled since a moment.

    Those are left out of whose pair something ran since, or runs.
    """
    given = {"crawl": crawl_id, "since": since, "by": by, "task": task, "failure": failure}
    rows = connection.execute(UNDOABLE, {**given, "group": group, "limit": limit})
    return typed(rows, HandledFailure)


def reopen(connection: Connection, found: Sequence[HandledFailure]) -> None:
    """Open these failures again, and hold their pairs."""
    if found:
        connection.execute(REOPEN, columns(found, failures="id"))
        connection.execute(HOLD_AGAIN, columns(found, items="item_id", tasks="task_id"))


def logged(connection: Connection, found: Sequence[OpenFailure]) -> list[OpenFailure]:
    """Return failures with what their attempts logged, as far as these are kept."""
    rows = connection.execute(LOGS, columns(found, failures="id")).all()
    logs = {row.id: row.log for row in rows}
    return [one._replace(log=logs.get(one.id, [])) for one in found]
