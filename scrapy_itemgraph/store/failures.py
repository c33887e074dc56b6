"""Failures: attempts that ended in an error, open until somebody handles them.

The items are locked by the caller.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.model import error_fingerprints, item_names
from scrapy_itemgraph.store.columns import columns, typed

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from scrapy_itemgraph.model.failure_filters import FailureFilter
    from scrapy_itemgraph.model.work import ErrorRecord, Pair

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
        run = excluded.run, led_to = NULL
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

# What a filter asks of a failure `f` beside its number, task and group.
IS_MEANT = """
        (CAST(:since AS timestamptz) IS NULL OR f.occurred_at >= :since)
        AND (CAST(:type AS text) IS NULL OR f.error->>'type' = :type)
        AND (CAST(:text AS text) IS NULL OR position(lower(:text)
            IN lower(concat_ws(': ', f.error->>'type', f.error->>'message'))) > 0)"""

# Failures that a person handled since a moment, while of their pairs nothing ran since, and nobody
# stored a result or expired it: that is a later word. A successful result came with a merge.
_UNDOABLE = f"""
    SELECT f.id, f.item_id, f.task_id FROM {{found}} JOIN tasks t ON t.id = f.task_id
    WHERE f.handled_at >= :handled_since AND f.handled_by = :by AND t.crawl_id = :crawl
        AND (CAST(:task AS text) IS NULL OR t.name = :task)
        AND (CAST(:group AS uuid) IS NULL OR f.fingerprint = :group)
        AND {IS_MEANT}
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
"""  # noqa: S608 - our own condition
UNDOABLE = text(_UNDOABLE.format(found="failures f"))
UNDOABLE_OF_NUMBERS = text(
    _UNDOABLE.format(
        found="unnest(CAST(:failures AS bigint[])) AS given(id) JOIN failures f ON f.id = given.id"
    )
)

REOPEN = text("""
    UPDATE failures SET handled_at = NULL, handled_by = NULL
    WHERE id = ANY (CAST(:failures AS bigint[]))
""")

HOLD_AGAIN = text("""
    UPDATE results r SET is_held = true
    FROM unnest(CAST(:items AS bigint[]), CAST(:tasks AS int[])) AS opened(item_id, task_id)
    WHERE r.item_id = opened.item_id AND r.task_id = opened.task_id
""")

# What the attempts logged that failed, and what is kept of their pages: each ended in the
# transaction that wrote its failure.
LOGS = text("""
    SELECT f.id, coalesce(a.log, '[]') AS log, a.page
    FROM failures f
    CROSS JOIN LATERAL (
        SELECT a.log, a.page FROM attempts a
        WHERE a.item_id = f.item_id AND a.task_id = f.task_id
            AND a.ended_at = f.occurred_at AND a.outcome IN ('failed', 'refused')
        ORDER BY a.id DESC LIMIT 1) AS a
    WHERE f.id = ANY (CAST(:failures AS bigint[])) AND (a.log IS NOT NULL OR a.page IS NOT NULL)
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

    `log` is what its attempt logged, as that has it, where it was asked for; `page` what is kept of
    the attempt's page.
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
    page: dict[str, Any] | None = None

    @property
    def is_page(self) -> bool:
        """Whether it is of a page that was fetched without a task."""
        return self.method is not None and item_names.is_request(self.item)


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


class PairOfFailure(NamedTuple):
    """A failure's number, and the pair that it is of."""

    id: int
    item_id: int
    task_id: int


def conditions(which: FailureFilter) -> dict[str, Any]:
    """Return what a filter asks beside numbers and an order: the values of `IS_MEANT` with it."""
    return {
        "task": which.task,
        "group": which.group,
        "since": which.occurred_since,
        "type": which.type,
        "text": which.text,
    }


def undoable(
    connection: Connection,
    crawl_id: int,
    since: datetime,
    which: FailureFilter,
    *,
    by: str,
    limit: int = 1000,
) -> list[PairOfFailure]:
    """Return failures that somebody handled since a moment.

    Those are left out of whose pair something ran since, or runs.
    """
    given = {"crawl": crawl_id, "handled_since": since, "by": by, "limit": limit}
    given |= conditions(which)
    if which.failures is None:
        return typed(connection.execute(UNDOABLE, given), PairOfFailure)
    given["failures"] = list(which.failures)
    return typed(connection.execute(UNDOABLE_OF_NUMBERS, given), PairOfFailure)


def reopen(connection: Connection, found: Sequence[PairOfFailure]) -> None:
    """Open these failures again, and hold their pairs."""
    if found:
        connection.execute(REOPEN, columns(found, failures="id"))
        connection.execute(HOLD_AGAIN, columns(found, items="item_id", tasks="task_id"))


def logged(connection: Connection, found: Sequence[OpenFailure]) -> list[OpenFailure]:
    """Return failures with what is kept of their attempts: what these logged, and their pages."""
    rows = connection.execute(LOGS, columns(found, failures="id")).all()
    kept = {row.id: {"log": row.log, "page": row.page} for row in rows}
    return [one._replace(**kept.get(one.id, {})) for one in found]
