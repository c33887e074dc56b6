"""Jobs: the processes of crawls that people steer, whoever started them.

A crawl that nobody steers has none. A runner makes and ends the jobs of its processes; a process
that somebody else started makes its own, and ends it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.model.crawl_states import Event, State
from scrapy_itemgraph.model.jobs import JobState, Origin, Stop, Wishes, state_after
from scrapy_itemgraph.store import crawl_events, notify
from scrapy_itemgraph.store.sql_conditions import IS_DEAD

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from typing import Any

    from sqlalchemy import Connection, CursorResult

LOST = "its process died"

# A runner's job, for the one process that it started: not for another one that has inherited its
# environment, such as a crawl that a spider starts.
OF_RUNNER = text("""
    SELECT j.id, j.ended_at IS NOT NULL AS has_ended, c.id AS crawl_id, c.name, c.state, c.spider,
        EXISTS (SELECT FROM processes p
            WHERE p.id = j.worker_id AND p.stopped_at IS NULL
                AND (p.host, p.process_id) <> (:host, :process)) AS is_others
    FROM jobs j JOIN crawls c ON c.id = j.crawl_id WHERE j.id = :job
""")

JOIN = text("""
    UPDATE jobs j SET state = 'running', worker_id = :worker, host = p.host,
        process_id = p.process_id, code = coalesce(j.code, p.code),
        started_at = coalesce(j.started_at, p.started_at), updated_at = clock_timestamp()
    FROM processes p
    WHERE j.id = :job AND j.ended_at IS NULL AND p.id = :worker
    RETURNING j.id
""")

MAKE = text("""
    INSERT INTO jobs (crawl_id, origin, state, worker_id, host, process_id, code, scrapyd_job,
        started_at)
    SELECT p.crawl_id, :origin, 'running', p.id, p.host, p.process_id, p.code, :scrapyd_job,
        p.started_at
    FROM processes p WHERE p.id = :worker AND p.stopped_at IS NULL
    RETURNING id, crawl_id
""")

# Of workers that began before anybody steered their crawl: until one makes its own, it is by hand.
ADOPT = text(f"""
    INSERT INTO jobs (crawl_id, origin, state, worker_id, host, process_id, code, started_at)
    SELECT p.crawl_id, 'hand', 'running', p.id, p.host, p.process_id, p.code, p.started_at
    FROM processes p
    WHERE p.crawl_id = :crawl AND p.kind = 'worker' AND NOT {IS_DEAD}
        AND NOT EXISTS (SELECT FROM jobs j WHERE j.worker_id = p.id)
    RETURNING id, worker_id
""")  # noqa: S608 - our own condition

ADOPTED = text("""
    UPDATE jobs SET origin = :origin, scrapyd_job = :scrapyd_job
    WHERE worker_id = :worker AND ended_at IS NULL
    RETURNING id
""")

# Those that no runner ends.
END = text("""
    UPDATE jobs j SET state = ended.state, reason = ended.reason, ended_at = clock_timestamp(),
        updated_at = clock_timestamp()
    FROM unnest(CAST(:workers AS int[]), CAST(:states AS text[]), CAST(:reasons AS text[]))
        AS ended(worker_id, state, reason)
    WHERE j.worker_id = ended.worker_id AND j.ended_at IS NULL AND j.origin <> 'runner'
    RETURNING j.id, j.crawl_id, j.worker_id, j.origin, j.state, j.reason
""")

WISHES = text("""
    SELECT c.name, c.state, j.id AS job, j.stop_wanted, e.by, e.at, c.state_reason
    FROM processes p JOIN crawls c ON c.id = p.crawl_id
    LEFT JOIN jobs j ON j.worker_id = p.id AND j.worker_id IS NOT NULL AND j.ended_at IS NULL
    LEFT JOIN LATERAL (
        SELECT e.by, e.at FROM crawl_events e
        WHERE e.crawl_id = c.id AND e.what IN ('added', 'paused', 'aborted', 'crash loop')
            AND c.state IN ('paused', 'aborted')
        ORDER BY e.id DESC LIMIT 1) AS e ON true
    WHERE p.id = :worker
""")


class RunnersJob(NamedTuple):
    """A job that a runner started this process for, and its crawl."""

    id: int
    crawl_id: int
    crawl: str
    state: State | None
    has_ended: bool


def of_runner(
    connection: Connection, number: int, *, spider: str, host: str, process_id: int
) -> RunnersJob | None:
    """Return the job that this process was started for, and its crawl.

    None where that is another process's, or another spider's: then this one only has inherited its
    environment.
    """
    given = {"job": number, "host": host, "process": process_id}
    row = connection.execute(OF_RUNNER, given).first()
    if row is None or row.is_others or row.spider not in {None, spider}:
        return None
    return RunnersJob(row.id, row.crawl_id, row.name, _state(row.state), row.has_ended)


def join(connection: Connection, number: int, worker_id: int) -> bool:
    """Have a worker run the job that its runner made; False if that has ended meanwhile."""
    return connection.execute(JOIN, {"job": number, "worker": worker_id}).first() is not None


def make(connection: Connection, worker_id: int, *, scrapyd_job: str | None) -> int | None:
    """Make the job of a worker that no runner started, as part of its crawl's history.

    The transaction may lock the queue now. None where the worker has stopped by then.
    """
    crawl_events.lock_queue(connection)
    origin = Origin.HAND if scrapyd_job is None else Origin.SCRAPYD
    given = {"worker": worker_id, "origin": origin, "scrapyd_job": scrapyd_job}
    adopted = connection.execute(ADOPTED, given).first()
    if adopted is not None:
        return int(adopted.id)
    row = connection.execute(MAKE, given).first()
    if row is None:
        return None
    by = _worker(worker_id)
    crawl_events.note(connection, row.crawl_id, by, Event.STARTED, job=row.id, origin=origin)
    return int(row.id)


def adopt(connection: Connection, crawl_id: int) -> None:
    """Make the jobs of a crawl's workers as people begin to steer it; the queue is locked."""
    for row in connection.execute(ADOPT, {"crawl": crawl_id}).all():
        by = _worker(row.worker_id)
        crawl_events.note(connection, crawl_id, by, Event.STARTED, job=row.id, origin=Origin.HAND)


def leave(connection: Connection, worker_id: int, reason: str) -> None:
    """End the job of a worker that ends, unless that is its runner's to end."""
    _end(connection, [worker_id], state_after(reason), reason)


def bury(connection: Connection, worker_ids: Sequence[int]) -> None:
    """End the jobs of dead workers, but for those that their runners end."""
    if worker_ids:
        _end(connection, worker_ids, JobState.TEMPORARY_ERROR, LOST)


def _end(connection: Connection, worker_ids: Sequence[int], state: JobState, reason: str) -> None:
    crawl_events.lock_queue(connection)
    count = len(worker_ids)
    given: dict[str, Any] = {"workers": list(worker_ids), "states": [state] * count}
    rows = connection.execute(END, given | {"reasons": [reason] * count}).all()
    for row in sorted(rows, key=lambda row: int(row.id)):
        crawl_events.note(
            connection,
            row.crawl_id,
            _worker(row.worker_id),
            Event.ENDED,
            job=row.id,
            origin=row.origin,
            state=row.state,
            reason=row.reason,
        )
    if rows:
        notify.tell_runners(connection)


def send_wishes(connection: Connection, worker_id: int) -> CursorResult[*tuple[Any, ...]]:
    """Ask what people and runners want of a worker; `wishes` reads the answer."""
    return connection.execute(WISHES, {"worker": worker_id})


def wishes(answer: CursorResult[*tuple[Any, ...]]) -> Wishes | None:
    """Return what people and runners want of a worker; None where the worker is not there."""
    row = answer.first()
    if row is None:
        return None
    at: datetime | None = row.at
    return Wishes(
        crawl=row.name,
        state=_state(row.state),
        job=row.job,
        stop_wanted=None if row.stop_wanted is None else Stop(row.stop_wanted),
        by=row.by,
        at=at,
        why=row.state_reason,
    )


def _state(stored: str | None) -> State | None:
    return None if stored is None else State(stored)


def _worker(worker_id: int) -> str:
    """Return how events name a worker."""
    return f"worker {worker_id}"
