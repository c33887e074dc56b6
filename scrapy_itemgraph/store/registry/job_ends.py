"""Ends of jobs: what is noted of one, and what follows for its place and its crawl."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from scrapy_itemgraph.model import next_commands
from scrapy_itemgraph.model.crawl_states import Event, State
from scrapy_itemgraph.model.job_ends import (
    CRASH_LOOP,
    End,
    Verdict,
    judge,
    pause_before_next,
    with_last_line,
)
from scrapy_itemgraph.model.jobs import Stop
from scrapy_itemgraph.model.notices import Kind
from scrapy_itemgraph.store import notify
from scrapy_itemgraph.store.crawl_events import lock_queue, note
from scrapy_itemgraph.store.registry import crawl_queue, notices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

STARTED = text("""
    UPDATE jobs SET process_id = :process, log = :log, updated_at = clock_timestamp()
    WHERE id = :job
""")

STOP = text("""
    UPDATE jobs SET stop_wanted = :why, updated_at = clock_timestamp()
    WHERE id = :job AND ended_at IS NULL AND stop_wanted IS NULL
    RETURNING worker_id, crawl_id
""")

OUTPUT = text("""
    UPDATE jobs SET output = :output, output_lines = :lines, memory = greatest(memory, :memory),
        updated_at = clock_timestamp()
    WHERE id = :job
""")

FREE_PLACE = text("""
    UPDATE places SET crawl_id = NULL, job_id = NULL, since = NULL WHERE job_id = :job
""")

OPEN = text("""
    SELECT j.id, j.crawl_id, j.stop_wanted, j.attempts, j.place, j.ended_at, r.name AS runner,
        p.id AS worker_id, p.id IS NOT NULL AS has_worker, p.reason, c.name AS crawl, c.state,
        c.crashes, c.crashed_at_pages
    FROM jobs j JOIN crawls c ON c.id = j.crawl_id
    LEFT JOIN runners r ON r.id = j.runner_id
    LEFT JOIN processes p ON p.id = coalesce(j.worker_id, (
        SELECT w.id FROM processes w
        WHERE w.crawl_id = j.crawl_id AND w.host = j.host AND w.process_id = j.process_id
            AND w.started_at >= j.started_at
        ORDER BY w.id DESC LIMIT 1))
    WHERE j.id = :job
    FOR NO KEY UPDATE OF j, c
""")

# Jobs in a row before this one whose processes did not get as far as to register.
REFUSALS = text("""
    SELECT count(*) FROM (
        SELECT j.worker_id, j.state, j.exit_code FROM jobs j
        WHERE j.crawl_id = :crawl AND j.ended_at IS NOT NULL AND j.started_at IS NOT NULL
        ORDER BY j.id DESC LIMIT 1) AS last
    WHERE last.worker_id IS NULL AND last.state = 'temporary-error' AND last.exit_code >= 0
""")

END = text("""
    UPDATE jobs SET state = :state, reason = :reason, exit_code = :exit_code,
        ended_at = clock_timestamp(), updated_at = clock_timestamp(),
        output = coalesce(:output, output), output_lines = coalesce(:lines, output_lines),
        memory = greatest(memory, :memory)
    WHERE id = :job
""")

# Why a job's place was taken from it, if not for a better crawl; its event is among the last.
TAKEN_FOR = text("""
    SELECT e.detail->>'why' FROM crawl_events e
    WHERE e.crawl_id = :crawl AND e.what = 'preempted' AND e.detail->>'job' = CAST(:job AS text)
    ORDER BY e.id DESC LIMIT 1
""")

PAGES = text("""
    SELECT CAST(coalesce(sum(done + failed + refused + gone), 0) AS bigint)
    FROM totals WHERE crawl_id = :crawl
""")

# Whether a worker did a page that it was killed too soon to tell in the totals: among the newest
# attempts of the database, which go back far enough, for workers tell every few seconds.
_NEWEST = 10_000
HAS_DONE = text(f"""
    SELECT EXISTS (
        SELECT FROM (
            SELECT a.worker_id, a.outcome FROM attempts a ORDER BY a.id DESC LIMIT {_NEWEST}) AS a
        WHERE a.worker_id = :worker
            AND a.outcome IN ('ok', 'unchanged', 'known', 'gone', 'failed', 'refused'))
""")  # noqa: S608 - our own number

CRASHED = text("""
    UPDATE crawls SET crashes = :crashes, crashed_at_pages = :pages,
        next_at = CASE WHEN CAST(:pause AS interval) > interval '0'
            THEN clock_timestamp() + CAST(:pause AS interval) ELSE next_at END
    WHERE id = :crawl
""")

WELL = text("""
    UPDATE crawls SET crashes = 0, crashed_at_pages = NULL
    WHERE id = :crawl AND crashes <> 0
""")

CRASHES = text("SELECT crashes FROM crawls WHERE id = :crawl")

NEXT_AT = text("SELECT CAST(next_at AS text) FROM crawls WHERE id = :crawl")


def started(connection: Connection, job: int, process_id: int, log: str) -> None:
    """Note the process of a job, and the file of its log."""
    connection.execute(STARTED, {"job": job, "process": process_id, "log": log})


def stop(connection: Connection, job: int, why: Stop, *, by: str) -> None:
    """Note why a job's process is told to stop, unless that is noted, and tell its worker."""
    lock_queue(connection)
    row = connection.execute(STOP, {"job": job, "why": why}).first()
    if row is None:
        return
    note(connection, row.crawl_id, by, Event.STOPPED, job=job, why=why)
    if row.worker_id is not None:
        connection.execute(notify.TELL, {"worker": row.worker_id})


def keep_output(connection: Connection, job: int, output: str, lines: int, memory: int) -> None:
    """Keep the end of a job's output, how many lines it has in all, and its most memory in bytes.

    Lines are those that have ended.
    """
    given = {"job": job, "output": output, "lines": lines, "memory": memory}
    connection.execute(OUTPUT, given)


def end(
    connection: Connection,
    job: int,
    *,
    by: str,
    exit_code: int | None,
    output: str | None = None,
    lines: int | None = None,
    memory: int | None = None,
    reason: str | None = None,
) -> Verdict | None:
    """End a job, free its place, and have its crawl wait or pause where that follows.

    `exit_code` is None where nobody saw the end. `reason` takes the place of what is found, of a
    process that could not be started. None: the job was over, or is gone with its crawl.
    """
    lock_queue(connection)
    row = connection.execute(OPEN, {"job": job}).first()
    connection.execute(FREE_PLACE, {"job": job})
    if row is None or row.ended_at is not None:
        notify.tell_runners(connection)
        return None
    verdict = judge(_end_of(connection, row, exit_code))
    said = reason or verdict.reason
    given = {"job": job, "state": verdict.state, "exit_code": exit_code}
    is_refused = verdict.is_abnormal and not row.has_worker
    given["reason"] = with_last_line(said, output) if is_refused else said
    connection.execute(END, {**given, "output": output, "lines": lines, "memory": memory})
    next_at = _judge_crawl(connection, row, verdict)
    note(
        connection,
        row.crawl_id,
        by,
        Event.ENDED,
        job=job,
        runner=row.runner,
        place=row.place,
        state=verdict.state,
        reason=said,
        exit_code=exit_code,
        next_at=next_at,
    )
    _pause(connection, row, verdict, said, by)
    notify.tell_runners(connection)
    return verdict


def end_orphans(connection: Connection, jobs: Sequence[int], *, by: str) -> int:
    """End jobs whose runner and process are gone; return how many were not over."""
    return sum(end(connection, job, by=by, exit_code=None) is not None for job in jobs)


def _end_of(connection: Connection, row: Any, exit_code: int | None) -> End:
    refusals = 0
    if not row.has_worker:
        refusals = connection.execute(REFUSALS, {"crawl": row.crawl_id}).scalar_one()
    stop_wanted = None if row.stop_wanted is None else Stop(row.stop_wanted)
    taken_for = None
    if stop_wanted is Stop.PREEMPT:
        taken_for = connection.execute(TAKEN_FOR, {"crawl": row.crawl_id, "job": row.id}).scalar()
    return End(
        exit_code=exit_code,
        reason=row.reason,
        has_worker=row.has_worker,
        stop_wanted=stop_wanted,
        taken_for=taken_for,
        refusals=refusals,
    )


def _judge_crawl(connection: Connection, row: Any, verdict: Verdict) -> str | None:
    """Count abnormal ends of a crawl's processes; return before when none is started, as text."""
    here = {"crawl": row.crawl_id}
    if not verdict.is_abnormal:
        if verdict.state == "completed":
            connection.execute(WELL, here)
        return None
    pages = connection.execute(PAGES, here).scalar_one()
    moved = (
        row.crashed_at_pages is None
        or pages != row.crashed_at_pages
        or connection.execute(HAS_DONE, {"worker": row.worker_id}).scalar_one()
    )
    crashes = 1 if moved else min(row.crashes + 1, 32767)
    pause = pause_before_next(row.attempts if verdict.backs_off else 0)
    connection.execute(CRASHED, {**here, "crashes": crashes, "pages": pages, "pause": pause})
    next_at: str | None = connection.execute(NEXT_AT, here).scalar()
    return next_at


def _pause(connection: Connection, row: Any, verdict: Verdict, reason: str, by: str) -> None:
    """Pause an active crawl of which it makes no sense to start another process."""
    crashes = 0
    if verdict.is_abnormal:
        crashes = connection.execute(CRASHES, {"crawl": row.crawl_id}).scalar_one()
    if row.state != State.ACTIVE or not (verdict.pauses or crashes >= CRASH_LOOP):
        return
    is_loop = crashes >= CRASH_LOOP
    said = (
        f"{crashes} processes in a row ended abnormally; the last: {reason}" if is_loop else reason
    )
    said += f"; its log: {next_commands.command('jobs', 'log', str(row.id))}"
    event = Event.CRASH_LOOP if is_loop else Event.PAUSED
    crawl_queue.put(connection, row.crawl_id, State.PAUSED, event, by=by, reason=said, job=row.id)
    what = Kind.CRASH_LOOP if is_loop else Kind.PAUSED
    told = {"crawl": row.crawl, "reason": said, "job": row.id}
    notices.write(connection, row.crawl_id, what, **told)
