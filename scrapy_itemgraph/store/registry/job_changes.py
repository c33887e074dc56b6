"""What people do to jobs and runners: cancel, retry, set, and take what nobody gives back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from scrapy_itemgraph.exceptions import NotFoundError, OperationError
from scrapy_itemgraph.model.crawl_states import Change, Event, State
from scrapy_itemgraph.model.jobs import Stop
from scrapy_itemgraph.store import notify
from scrapy_itemgraph.store.crawl_events import lock_queue, note
from scrapy_itemgraph.store.registry import (
    crawl_queue,
    dead_processes,
    job_ends,
    processes,
    runners,
)
from scrapy_itemgraph.tools.wording import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection, TextClause

_JOB = """
    SELECT j.id, j.state, j.crawl_id, j.worker_id, j.ended_at, j.stop_wanted,
        r.process_id AS runner, c.name AS crawl, c.state AS crawl_state
    FROM jobs j JOIN crawls c ON c.id = j.crawl_id LEFT JOIN runners r ON r.id = j.runner_id
    WHERE j.id = :job"""

JOB = text(_JOB)

LOCK_JOB = text(f"{_JOB} FOR NO KEY UPDATE OF j")

CANCEL = text("""
    UPDATE jobs SET state = 'cancelled', reason = 'it was cancelled', ended_at = clock_timestamp(),
        updated_at = clock_timestamp()
    WHERE id = :job
""")

RETRY = text("""
    INSERT INTO jobs (crawl_id, origin) VALUES (:crawl, 'runner') RETURNING id
""")

TERMS = text("""
    UPDATE runners SET tags = coalesce(CAST(:tags AS text[]), tags),
        only_tagged = coalesce(CAST(:only_tagged AS bool), only_tagged),
        preempts = coalesce(CAST(:preempts AS bool), preempts)
    WHERE name = :name
    RETURNING id, project, tags, only_tagged, places, preempts
""")

END_LEASE = text("""
    UPDATE processes SET lease_until = started_at
    WHERE id = :process AND stopped_at IS NULL RETURNING crawl_id, kind
""")


def cancel(connection: Connection, job: int, *, by: str) -> str:
    """Cancel a job that waits, or have its process end; return the name of its crawl.

    Raises:
        NotFoundError: there is no such job.
        OperationError: it is over, or told to stop already.

    """
    lock_queue(connection)
    row = _job(connection, job, LOCK_JOB)
    if row.ended_at is not None:
        raise OperationError(f"the job {job} is over: {row.state}")
    if row.state == "pending":
        connection.execute(CANCEL, {"job": job})
        note(connection, row.crawl_id, by, Event.ENDED, job=job, state="cancelled")
        return str(row.crawl)
    if row.stop_wanted is not None:
        raise OperationError(f"the job {job} is told to stop already, for: {row.stop_wanted}")
    job_ends.stop(connection, job, Stop.CANCEL, by=by)
    if row.runner is not None:
        connection.execute(notify.TELL, {"worker": row.runner})
    return str(row.crawl)


def retry(connection: Connection, job: int, *, by: str) -> tuple[int, str]:
    """Have another process do what a job did; return the new job's number, and its crawl's name.

    The crawl becomes active, if it is not.

    Raises:
        NotFoundError: there is no such job.
        OperationError: it is not over, its crawl is paused, or nobody steers its crawl any more.

    """
    lock_queue(connection)
    row = _job(connection, job, LOCK_JOB)
    if row.ended_at is None:
        raise OperationError(f"the job {job} is not over: it is {row.state}")
    if row.crawl_state == State.PAUSED:
        raise OperationError(
            f"the crawl {row.crawl} is paused, so nothing of it is started: scrapy itemgraph "
            f"crawls resume {row.crawl}"
        )
    if row.crawl_state != State.ACTIVE:
        crawl_queue.change(connection, row.crawl, Change.REVIVE, by=by, reason=f"job {job} again")
    made: int = connection.execute(RETRY, {"crawl": row.crawl_id}).scalar_one()
    notify.tell_runners(connection)
    return made, str(row.crawl)


def _job(connection: Connection, job: int, asked: TextClause = JOB) -> Any:
    row = connection.execute(asked, {"job": job}).first()
    if row is None:
        raise NotFoundError(f"there is no job {job}; scrapy itemgraph jobs list shows them")
    return row


def set_runner(connection: Connection, name: str, given: Mapping[str, Any], *, by: str) -> bool:
    """Change which crawls a runner takes until it starts again; False: there is none."""
    lock_queue(connection)
    asked = {"tags": None, "only_tagged": None, "preempts": None, **given, "name": name}
    row = connection.execute(TERMS, asked).mappings().first()
    if row is None:
        return False
    told = {key: value for key, value in row.items() if key != "id"}
    note(connection, None, by, Event.RUNNER_SET, runner=name, **told)
    notify.tell_runners(connection)
    return True


def reclaim_runner(connection: Connection, name: str, reason: str, *, by: str) -> bool:
    """Take from a runner what it has; False: there is none of this name.

    Its processes end when it sees that, and its jobs go on elsewhere when they have.
    """
    lock_queue(connection)
    row = runners.named(connection, name)
    if row is None:
        return False
    why = f"reclaimed: {one_line(reason)}"
    if row.process is not None:
        processes.stop(connection, row.process, why)
    note(connection, None, by, Event.RECLAIMED, runner=name, reason=reason)
    runners.leave(connection, row.id, name, by=by, why=why)
    return True


def reclaim_job(connection: Connection, job: int, reason: str, *, by: str) -> None:
    """End a job whose process nobody sees, and free the claims of its worker.

    A process that lives in spite of it sees that, and ends.

    Raises:
        NotFoundError: there is no such job.
        OperationError: it is over, or waits to be started.

    """
    row = _job(connection, job)
    if row.ended_at is not None or row.state == "pending":
        raise OperationError(f"the job {job} has no process: it is {row.state}")
    if row.worker_id is not None:
        _end_lease(connection, row.worker_id)
    lock_queue(connection)
    note(connection, row.crawl_id, by, Event.RECLAIMED, job=job, reason=reason)
    why = f"reclaimed: {one_line(reason)}"
    job_ends.end(connection, job, by=by, exit_code=None, reason=why)


def reclaim_worker(connection: Connection, worker: int, reason: str, *, by: str) -> None:
    """Free the claims of a worker that nobody sees; if it lives it goes on as a new one.

    Raises:
        NotFoundError: there is no such worker, or it has stopped.

    """
    crawl_id = _end_lease(connection, worker)
    if crawl_id is None:
        raise NotFoundError(
            f"there is no worker {worker} that has not stopped; scrapy itemgraph status lists them"
        )
    lock_queue(connection)
    note(connection, crawl_id, by, Event.RECLAIMED, worker=worker, reason=reason)


def _end_lease(connection: Connection, process: int) -> int | None:
    """End the lease of a worker, and take over from it; return the number of its crawl."""
    row = connection.execute(END_LEASE, {"process": process}).first()
    if row is None or row.crawl_id is None:
        return None
    dead_processes.take_over(connection, row.crawl_id, 0)
    return int(row.crawl_id)
