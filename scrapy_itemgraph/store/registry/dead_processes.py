"""Dead processes: how a death is found out, and what becomes of the claims of dead workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.model.work import ErrorRecord, GivenUp, Outcome, TakenOver, attempt_after
from scrapy_itemgraph.postgres import server_clock
from scrapy_itemgraph.store import attempts, failures, in_flight, logins
from scrapy_itemgraph.store.columns import columns, typed
from scrapy_itemgraph.store.items import lock_items
from scrapy_itemgraph.store.limits import holdings
from scrapy_itemgraph.store.registry import jobs
from scrapy_itemgraph.store.sql_conditions import IS_READY_ALONE, IS_SURELY_DEAD, LOCK_IS_FREE
from scrapy_itemgraph.store.worklist import claims

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from sqlalchemy import Connection


# Of a crawl's workers, and of processes that work on no crawl of their own, but for runners: who
# notes that these are gone frees their places. The numbers are looked up first, so that two indexed
# searches suffice.
LOST = text(f"""
    SELECT p.id, {LOCK_IS_FREE} AS has_died,
        EXISTS (SELECT FROM jobs j
            WHERE j.worker_id = p.id AND j.worker_id IS NOT NULL AND j.ended_at IS NULL
                AND j.origin <> 'runner') AS has_job
    FROM processes p
    WHERE p.id = ANY (ARRAY(
            SELECT x.id FROM processes x WHERE x.crawl_id = :crawl AND x.stopped_at IS NULL
            UNION ALL
            SELECT x.id FROM processes x
            WHERE x.crawl_id IS NULL AND x.stopped_at IS NULL AND x.kind <> 'runner'))
        AND p.stopped_at IS NULL AND p.id <> :own AND {IS_SURELY_DEAD}
    FOR NO KEY UPDATE OF p SKIP LOCKED
""")  # noqa: S608 - our own conditions

BURY = text("""
    UPDATE processes p
    SET stopped_at = clock_timestamp(),
        reason = CASE WHEN lost.has_died THEN 'died' ELSE 'stalled' END
    FROM unnest(CAST(:processes AS int[]), CAST(:died AS bool[])) AS lost(id, has_died)
    WHERE p.id = lost.id
""")

# So many workers in a row that died, or stalled, on work that they ran alone make it a failure.
MOST_ALONE = 3


class LostProcess(NamedTuple):
    """A process that lives no more; not `has_died`: its lease is over, and it holds its lock.

    `has_job`: it is a worker with a job that no runner ends.
    """

    id: int
    has_died: bool
    has_job: bool


class Orphan(NamedTuple):
    """A claim of a worker that died, or else stalled, and whether it was in flight."""

    item_id: int
    task_id: int
    token: UUID
    worker_id: int
    queue_id: int
    tries: int
    claimed_at: datetime
    is_suspect: bool
    alone_deaths: int
    alone_stalls: int
    has_died: bool
    version: str
    task: str
    was_in_flight: bool

    @property
    def is_fatal(self) -> bool:
        """Whether the worker was the last of several that ran it alone."""
        before = self.alone_deaths if self.has_died else self.alone_stalls
        return self.was_in_flight and self.is_suspect and before + 1 >= MOST_ALONE

    @property
    def attempt(self) -> attempts.Attempt:
        """What is recorded of it."""
        return attempts.Attempt(
            item_id=self.item_id,
            task_id=self.task_id,
            worker_id=self.worker_id,
            token=self.token,
            version=self.version,
            number=attempt_after(self.tries),
            outcome=Outcome.DIED if self.has_died else Outcome.STALLED,
            started_at=self.claimed_at,
        )


# Their claims. Not SKIP LOCKED: a commit of theirs that still runs ends its own.
ORPHANS = text("""
    SELECT w.item_id, w.task_id, w.token, w.worker_id, w.queue_id, w.tries, w.claimed_at,
        w.is_suspect, w.alone_deaths, w.alone_stalls, lost.has_died, t.version, t.name AS task,
        EXISTS (
            SELECT FROM handed h
            CROSS JOIN LATERAL unnest(h.items, h.tasks) AS had(item_id, task_id)
            WHERE h.worker_id = lost.id
                AND had.item_id = w.item_id AND had.task_id = w.task_id) AS was_in_flight
    FROM unnest(CAST(:workers AS int[]), CAST(:died AS bool[])) AS lost(id, has_died)
    JOIN work w ON w.worker_id = lost.id AND w.token IS NOT NULL
    JOIN tasks t ON t.id = w.task_id
    FOR UPDATE OF w
""")

# Only what its engine had is to blame for what became of a worker, and what it had alone the more.
FREE_ORPHANS = text("""
    UPDATE work w
    SET token = NULL, worker_id = NULL, claimed_at = NULL,
        deaths = least(w.deaths + orphan.deaths, 32767),
        stalls = least(w.stalls + orphan.stalls, 32767),
        alone_deaths = least(32767,
            w.alone_deaths + CASE WHEN w.is_suspect THEN orphan.deaths ELSE 0 END),
        alone_stalls = least(32767,
            w.alone_stalls + CASE WHEN w.is_suspect THEN orphan.stalls ELSE 0 END)
    FROM unnest(CAST(:items AS bigint[]), CAST(:tasks AS int[]), CAST(:deaths AS int[]),
        CAST(:stalls AS int[])) AS orphan(item_id, task_id, deaths, stalls)
    WHERE w.item_id = orphan.item_id AND w.task_id = orphan.task_id
""")

WHOSE = text("""
    SELECT i.id, i.name, i.data->>'url' AS url
    FROM unnest(CAST(:items AS bigint[])) AS wanted(id) JOIN items i ON i.id = wanted.id
""")

LOOK = text(f"""
    SELECT
        EXISTS (SELECT FROM work w
            WHERE w.crawl_id = :crawl AND {IS_READY_ALONE}) AS suspects_wait,
        c.state AS crawl_state, c.ruleset_id,
        (SELECT count(*) FROM processes p
            WHERE p.crawl_id = :crawl AND p.stopped_at IS NULL) AS workers,
        NOT EXISTS (SELECT FROM processes p
            WHERE p.crawl_id = :crawl AND p.stopped_at IS NULL AND p.id < :worker) AS is_first,
        EXISTS (SELECT FROM processes p JOIN work w ON w.worker_id = p.id AND w.token IS NOT NULL
            WHERE p.crawl_id = :crawl AND p.stopped_at IS NULL AND p.id <> :worker) AS others_work
    FROM (SELECT) AS one LEFT JOIN crawls c ON c.id = :crawl
""")  # noqa: S608 - our own conditions


def lost(connection: Connection, crawl_id: int, own: int = 0) -> list[LostProcess]:
    """Return a crawl's dead and stalled workers, and all such processes of other kinds.

    Their rows are locked. `own` is the process that asks, which is not among them.
    """
    given = {"crawl": crawl_id, "own": own, "untrusted": server_clock.untrusted(connection)}
    return typed(connection.execute(LOST, given), LostProcess)


def bury(connection: Connection, gone: Sequence[LostProcess]) -> None:
    """Note of processes that are locked that they died or stalled."""
    connection.execute(BURY, columns(gone, processes="id", died="has_died"))


def take_over(connection: Connection, crawl_id: int, worker_id: int) -> TakenOver:
    """Bury the dead and stalled, and free the claims of those who were workers of a crawl.

    Work that was the last of several of them while it ran alone becomes a failure. Processes of
    other kinds have no claims, and nothing is blamed for their end.
    """
    gone = lost(connection, crawl_id, worker_id)
    if not gone:
        return TakenOver(**_look(connection, crawl_id, worker_id))
    bury(connection, gone)
    given = columns(gone, workers="id", died="has_died")
    numbers = given["workers"]
    logins.free(connection, numbers)
    orphans = typed(connection.execute(ORPHANS, given), Orphan)
    in_flight.forget(connection, numbers)
    fatal = [one for one in orphans if one.is_fatal]
    freed = [one for one in orphans if not one.is_fatal]
    if fatal:
        connection.execute(claims.DROP, _pairs(fatal))
    if freed:
        charged = {
            "deaths": [int(one.was_in_flight and one.has_died) for one in freed],
            "stalls": [int(one.was_in_flight and not one.has_died) for one in freed],
        }
        connection.execute(FREE_ORPHANS, {**_pairs(freed), **charged})
    given_up: list[GivenUp] = []
    if orphans:
        item_ids = [one.item_id for one in orphans]
        items = set(lock_items(connection, item_ids))
        attempts.record(connection, [one.attempt for one in orphans if one.item_id in items])
        given_up = _give_up(connection, fatal)
        claims.reopen(connection, item_ids, [one.queue_id for one in freed])
    holdings.outlive(connection, numbers)  # late, for commits lock items before queues
    jobs.bury(connection, [one.id for one in gone if one.has_job])  # last, for it locks the queue
    return TakenOver(
        claims=len(orphans),
        given_up=tuple(given_up),
        **_look(connection, crawl_id, worker_id),
    )


def _look(connection: Connection, crawl_id: int, worker_id: int) -> dict[str, Any]:
    """Return what `TakenOver` tells beside what was taken over."""
    row = connection.execute(LOOK, {"crawl": crawl_id, "worker": worker_id}).one()
    return row._asdict()


def _give_up(connection: Connection, fatal: Sequence[Orphan]) -> list[GivenUp]:
    """Make a failure of work, where its item is still there; return whose work that is."""
    if not fatal:
        return []
    items = {row.id: row for row in connection.execute(WHOSE, _pairs(fatal))}
    given_up = []
    failed = []
    for row in fatal:
        item = items.get(row.item_id)
        if item is None:
            continue
        kind = "worker died" if row.has_died else "stalled"
        what = "died" if row.has_died else "stalled: their event loop stood still"
        error = ErrorRecord(
            type=kind,
            message=f"{MOST_ALONE} workers in a row {what}, while each ran this alone",
            url=item.url,
            task=row.task,
            item=item.name,
        )
        given_up.append(GivenUp(item=item.name, task=row.task, kind=kind, url=item.url))
        failed.append(
            failures.Failed(
                item_id=row.item_id,
                task_id=row.task_id,
                version=row.version,
                error=error,
            )
        )
    failures.record(connection, failed)
    return given_up


def _pairs(rows: Sequence[Orphan]) -> dict[str, list[int]]:
    return columns(rows, items="item_id", tasks="task_id")
