"""Places of runners: which crawl each gets next, and which process ends for a better crawl.

A crawl is eligible for a runner if it is active, of the runner's project, its moment to start has
come, the runner's tags allow it, it has fewer processes than it may have, and its resource is free.
The best is the least by (nice, queued_at, id). All is decided under the queue's lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.model.crawl_states import Event
from scrapy_itemgraph.model.jobs import Stop
from scrapy_itemgraph.model.runners import Assigned, LeftJob, Look, OwnJob
from scrapy_itemgraph.postgres import engine, server_clock
from scrapy_itemgraph.store import notify
from scrapy_itemgraph.store.columns import typed
from scrapy_itemgraph.store.crawl_events import lock_queue, note
from scrapy_itemgraph.store.registry import schedule_starts
from scrapy_itemgraph.store.sql_conditions import IS_SURELY_DEAD

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from sqlalchemy import Connection

STICKS = 30  # seconds for which no better crawl takes a place

# Whether the tags of a runner allow a crawl `c`.
FITS = """((c.tag IS NULL AND NOT CAST(:only_tagged AS bool))
            OR c.tag = ANY (CAST(:tags AS text[])))"""

# How many processes run a crawl `c`, whoever started them.
PROCESSES = """(SELECT count(*) FROM jobs j
            WHERE j.crawl_id = c.id AND j.ended_at IS NULL AND j.started_at IS NOT NULL)"""

# Whether nothing runs that has the resource of a crawl `c`, and its gap is over. Processes that run
# are few, and crawls are many: it is looked for among the former.
RESOURCE_IS_FREE = """(c.resource_id IS NULL OR (
            NOT EXISTS (
                SELECT FROM jobs j JOIN crawls o ON o.id = j.crawl_id
                WHERE j.ended_at IS NULL AND j.started_at IS NOT NULL
                    AND o.resource_id = c.resource_id)
            AND NOT EXISTS (
                SELECT FROM limits l WHERE l.id = c.resource_id
                    AND l.last_at + make_interval(secs => coalesce(l.set_gap, l.gap, 0))
                        > clock_timestamp())))"""

ELIGIBLE = f"""c.state = 'active' AND c.project = :project
        AND (c.next_at IS NULL OR c.next_at <= clock_timestamp())
        AND {FITS}
        AND {PROCESSES} < c.concurrency
        AND {RESOURCE_IS_FREE}"""

IN_ORDER = "ORDER BY c.nice, c.queued_at, c.id LIMIT 1"

_TAKEN = """
    SELECT c.id, c.name, c.spider, c.start_arguments, c.start_settings, c.time_limit,
        c.resource_id
    FROM crawls c"""

BEST = text(f"{_TAKEN} WHERE {ELIGIBLE} {IN_ORDER}")

THIS_ONE = text(f"{_TAKEN} WHERE c.id = :crawl AND {ELIGIBLE}")

# Crawls for which places are being freed already do not need another one.
BEST_WAITING = text(f"""
    SELECT c.id, c.name, c.tag, c.nice, c.queued_at FROM crawls c
    WHERE {ELIGIBLE}
        AND {PROCESSES} + (SELECT count(*) FROM places k WHERE k.kept_for = c.id) < c.concurrency
    {IN_ORDER}
""")  # noqa: S608 - our own conditions

OWN = text("""
    SELECT r.name, r.project, r.tags, r.only_tagged, r.preempts, r.low,
        r.drains_since IS NOT NULL AS is_draining
    FROM runners r JOIN processes p ON p.id = r.process_id
    WHERE r.id = :runner AND p.id = :process AND p.stopped_at IS NULL
""")

FREE = text("""
    SELECT p.number, p.kept_for, p.locked_to FROM places p
    WHERE p.runner_id = :runner AND p.job_id IS NULL
    ORDER BY p.locked_to IS NULL, p.kept_for IS NULL, p.number
    FOR NO KEY UPDATE
""")

# Whether one of its processes ended abnormally last; of one whose end nobody saw that is not known.
LAST_END = text("""
    SELECT CASE WHEN j.state IN ('temporary-error', 'permanent-error')
            AND j.exit_code IS NOT NULL AND j.stop_wanted IS DISTINCT FROM 'time'
        THEN j.attempts ELSE 0 END
    FROM jobs j WHERE j.crawl_id = :crawl AND j.ended_at IS NOT NULL AND j.started_at IS NOT NULL
    ORDER BY j.id DESC LIMIT 1
""")

# What somebody asked for, such as a schedule, is the row of the first process.
TAKE_PENDING = text("""
    UPDATE jobs SET state = 'running', runner_id = :runner, place = :place, host = :host,
        attempts = :attempts, started_at = clock_timestamp(), updated_at = clock_timestamp()
    WHERE id = (
        SELECT j.id FROM jobs j
        WHERE j.crawl_id = :crawl AND j.state = 'pending' AND j.ended_at IS NULL
            AND (j.not_before IS NULL OR j.not_before <= clock_timestamp())
        ORDER BY j.id LIMIT 1 FOR UPDATE)
    RETURNING id, schedule_id, due_at
""")

MAKE_JOB = text("""
    INSERT INTO jobs (crawl_id, origin, runner_id, place, state, attempts, host, started_at)
    VALUES (:crawl, 'runner', :runner, :place, 'running', :attempts, :host, clock_timestamp())
    RETURNING id, schedule_id, due_at
""")

# What a schedule started holds for all processes until its crawl is at its end: the last job of a
# schedule that began since the run before ended, or this one, if that is over.
SCHEDULED = text("""
    SELECT j.schedule_id, j.due_at FROM schedules s
    CROSS JOIN LATERAL (
        SELECT x.id, x.schedule_id, x.due_at, x.started_at FROM jobs x
        WHERE x.schedule_id = s.id AND x.started_at IS NOT NULL
        ORDER BY x.due_at DESC LIMIT 1) AS j
    WHERE s.crawl_id = :crawl AND NOT EXISTS (
        SELECT FROM crawls c JOIN runs r ON r.crawl_id = c.id
        WHERE c.id = :crawl AND r.number IN (c.run - 1, c.run)
            AND (r.number < c.run OR r.is_finished) AND r.ended_at >= j.started_at)
    ORDER BY j.id DESC LIMIT 1
""")

TIME_LIMIT = text("SELECT time_limit FROM schedules WHERE id = :schedule")

TAKE_PLACE = text("""
    UPDATE places SET crawl_id = :crawl, job_id = :job, since = clock_timestamp(), kept_for = NULL
    WHERE runner_id = :runner AND number = :place
""")

UNKEEP = text("""
    UPDATE places SET kept_for = NULL WHERE runner_id = :runner AND number = :place
""")

USE_RESOURCE = text("""
    UPDATE limits SET last_at = clock_timestamp() WHERE id = :resource
    RETURNING CAST(last_at + make_interval(secs => coalesce(set_gap, gap)) AS text)
""")

# Whether a place is free on any runner that may take a crawl and is not noted to be gone: that one
# takes it.
FREE_ELSEWHERE = text("""
    SELECT EXISTS (
        SELECT FROM runners r JOIN processes p ON p.id = r.process_id
        JOIN places free ON free.runner_id = r.id
        WHERE r.project = :project AND r.drains_since IS NULL AND r.low IS NULL
            AND ((CAST(:tag AS text) IS NULL AND NOT r.only_tagged)
                OR CAST(:tag AS text) = ANY (r.tags))
            AND free.job_id IS NULL AND (free.kept_for IS NULL OR free.kept_for = :crawl)
            AND (free.locked_to IS NULL OR free.locked_to = :crawl)
            AND p.stopped_at IS NULL)
""")

WORST = text("""
    SELECT p.number, p.job_id, c.id AS crawl_id, c.name, j.worker_id
    FROM places p JOIN crawls c ON c.id = p.crawl_id JOIN jobs j ON j.id = p.job_id
    WHERE p.runner_id = :runner AND p.locked_to IS NULL AND p.kept_for IS NULL
        AND j.ended_at IS NULL AND j.stop_wanted IS NULL
        AND p.since <= clock_timestamp() - make_interval(secs => :sticks)
        AND (c.nice, c.queued_at, c.id) > (:nice, CAST(:queued_at AS timestamptz), :crawl)
    ORDER BY c.nice DESC, c.queued_at DESC, c.id DESC LIMIT 1
    FOR NO KEY UPDATE OF p
""")

KEEP = text("""
    UPDATE places SET kept_for = :crawl WHERE runner_id = :runner AND number = :place
""")

STOP = text("""
    UPDATE jobs SET stop_wanted = :why, updated_at = clock_timestamp()
    WHERE id = :job AND ended_at IS NULL AND stop_wanted IS NULL
    RETURNING worker_id
""")

# Processes whose place may not have their crawl any more: its tag is another, or it runs too often.
# The last first; no index has that order, so it begins with the places of the runner.
MISPLACED = text(f"""
    SELECT j.id AS job_id, p.number, c.id AS crawl_id, j.worker_id,
        CASE WHEN NOT coalesce({FITS}, false) OR c.project <> :project
                THEN 'its runner may not take the crawl any more'
            WHEN p.locked_to <> c.id THEN 'its place was locked to another crawl'
            ELSE format('more processes ran than the crawl may have (%s)', c.concurrency)
        END AS why
    FROM places p JOIN jobs j ON j.id = p.job_id JOIN crawls c ON c.id = p.crawl_id
    WHERE p.runner_id = :runner AND j.ended_at IS NULL AND j.stop_wanted IS NULL
        AND c.state = 'active'
        AND (NOT coalesce({FITS}, false) OR c.project <> :project
            OR c.concurrency <= (SELECT count(*) FROM jobs e WHERE e.crawl_id = c.id
                AND e.ended_at IS NULL AND e.started_at IS NOT NULL AND e.stop_wanted IS NULL
                AND e.id < j.id)
            OR (p.locked_to IS NOT NULL AND p.locked_to <> c.id))
    ORDER BY -j.id
""")  # noqa: S608 - our own condition

JOBS = text("""
    SELECT j.id AS job, p.number AS place, j.stop_wanted, j.ended_at IS NOT NULL AS is_over,
        j.worker_id
    FROM places p JOIN jobs j ON j.id = p.job_id WHERE p.runner_id = :runner ORDER BY p.number
""")

# The dead among runners that nobody noted to be gone, and jobs of runners that are gone.
GONE = text(f"""
    SELECT r.id FROM runners r LEFT JOIN processes p ON p.id = r.process_id
    WHERE r.id <> :runner
        AND (p.stopped_at IS NULL
            OR EXISTS (SELECT FROM places x WHERE x.runner_id = r.id AND x.job_id IS NOT NULL))
        AND (p.id IS NULL OR {IS_SURELY_DEAD})
""")  # noqa: S608 - our own condition

LEFT = text(f"""
    SELECT j.id AS job, c.name AS crawl, j.host, j.process_id,
        p.id IS NULL OR {IS_SURELY_DEAD} AS is_orphan
    FROM jobs j JOIN crawls c ON c.id = j.crawl_id LEFT JOIN processes p ON p.id = j.worker_id
    WHERE j.ended_at IS NULL AND j.started_at IS NOT NULL AND j.origin = 'runner'
        AND j.place IS NULL
""")  # noqa: S608 - our own condition

HAS_FREE = text("""
    SELECT EXISTS (SELECT FROM places p
        WHERE p.runner_id = :runner AND p.job_id IS NULL AND p.locked_to IS NULL)
""")

LOCKED_WAIT = text(f"""
    SELECT EXISTS (SELECT FROM places p JOIN crawls c ON c.id = p.locked_to
        WHERE p.runner_id = :runner AND p.job_id IS NULL AND {ELIGIBLE})
""")  # noqa: S608 - our own conditions


class _Runner(NamedTuple):
    """A runner that lives, as the decisions need it."""

    name: str
    project: str
    tags: list[str]
    only_tagged: bool
    preempts: bool
    low: str | None
    is_draining: bool

    @property
    def by(self) -> str:
        return f"runner {self.name}"

    @property
    def asked(self) -> dict[str, Any]:
        """What `ELIGIBLE` asks for."""
        return {
            "project": self.project,
            "tags": list(self.tags),
            "only_tagged": self.only_tagged,
        }

    @property
    def starts(self) -> bool:
        """Whether it starts anything."""
        return self.low is None and not self.is_draining


class _Job(NamedTuple):
    id: int
    schedule_id: int | None
    due_at: datetime | None


def look(connection: Connection, runner_id: int, process_id: int) -> Look | None:
    """Return what a runner's round finds; None: the runner was given up for dead.

    It changes nothing.
    """
    engine.hot_path(connection)
    here = {"runner": runner_id, "process": process_id}
    runner = _runner(connection, here)
    if runner is None:
        return None
    untrusted = {**here, "untrusted": server_clock.untrusted(connection)}
    jobs = [
        OwnJob(**{**row, "stop_wanted": row["stop_wanted"] and Stop(row["stop_wanted"])})
        for row in connection.execute(JOBS, here).mappings()
    ]
    is_free = runner.starts and bool(connection.execute(HAS_FREE, here).scalar_one())
    is_wanted = is_free and connection.execute(BEST, runner.asked).first() is not None
    return Look(
        jobs=tuple(jobs),
        gone=tuple(connection.execute(GONE, untrusted).scalars()),
        left=tuple(typed(connection.execute(LEFT, untrusted), LeftJob)),
        may_assign=is_wanted or (runner.starts and _locked_waits(connection, runner, here)),
        # Nothing that a free place could have is better than what runs.
        may_preempt=_is_misplaced(connection, runner, here)
        or ((is_wanted or not is_free) and _may_preempt(connection, runner, here)),
        is_due=schedule_starts.is_anything_due(connection),
        is_draining=runner.is_draining,
    )


def _runner(connection: Connection, here: dict[str, Any]) -> _Runner | None:
    found = typed(connection.execute(OWN, here), _Runner)
    return found[0] if found else None


def _locked_waits(connection: Connection, runner: _Runner, here: dict[str, Any]) -> bool:
    """Tell whether a crawl waits for a free place of a runner that is locked to it."""
    return bool(connection.execute(LOCKED_WAIT, {**here, **runner.asked}).scalar_one())


def _is_misplaced(connection: Connection, runner: _Runner, here: dict[str, Any]) -> bool:
    """Tell whether some process may have its place no more."""
    return connection.execute(MISPLACED, {**here, **runner.asked}).first() is not None


def _may_preempt(connection: Connection, runner: _Runner, here: dict[str, Any]) -> bool:
    """Tell whether some process has to end for a better crawl."""
    return runner.starts and runner.preempts and _preempted(connection, runner, here) is not None


def assign(connection: Connection, runner_id: int, process_id: int, host: str) -> list[Assigned]:
    """Give each free place of a runner the best crawl that it may take; return the jobs.

    A place that is locked, or kept for a crawl, is looked at first.
    """
    engine.hot_path(connection)
    lock_queue(connection)
    here = {"runner": runner_id, "process": process_id, "host": host}
    runner = _runner(connection, here)
    if runner is None or not runner.starts:
        return []
    assigned: list[Assigned] = []
    for place in connection.execute(FREE, here).all():
        crawl = _next_crawl(connection, runner, here, place)
        if crawl is not None:
            at = {**here, "place": place.number}
            assigned.append(_give(connection, runner, at, crawl))
        elif place.locked_to is None:
            break  # nothing waits that this runner may take, so the places after it get nothing
    return assigned


def _next_crawl(
    connection: Connection, runner: _Runner, here: dict[str, Any], place: Any
) -> Any | None:
    """Return the crawl that a free place gets: the one it is locked to or kept for, or the best."""
    for only in (place.locked_to, place.kept_for):
        if only is not None:
            asked = {**runner.asked, "crawl": only}
            crawl = connection.execute(THIS_ONE, asked).first()
            if crawl is not None or only == place.locked_to:
                return crawl
            connection.execute(UNKEEP, {**here, "place": place.number})
            told = {"runner": runner.name, "place": place.number}
            note(connection, only, runner.by, Event.UNKEPT, **told)
    return connection.execute(BEST, runner.asked).first()


def _give(connection: Connection, runner: _Runner, at: dict[str, Any], crawl: Any) -> Assigned:
    """Have a place of a runner run a crawl; return the job."""
    before = connection.execute(LAST_END, {"crawl": crawl.id}).scalar() or 0
    given = {**at, "crawl": crawl.id, "attempts": min(before + 1, 32767)}
    made = typed(connection.execute(TAKE_PENDING, given), _Job)
    job = made[0] if made else typed(connection.execute(MAKE_JOB, given), _Job)[0]
    if job.schedule_id is None and (started := connection.execute(SCHEDULED, given).first()):
        job = job._replace(**started._asdict())
    connection.execute(TAKE_PLACE, {**given, "job": job.id})
    resource_free_at = None
    if crawl.resource_id is not None:
        resource = {"resource": crawl.resource_id}
        resource_free_at = connection.execute(USE_RESOURCE, resource).scalar()
    note(
        connection,
        crawl.id,
        runner.by,
        Event.ASSIGNED,
        job=job.id,
        runner=runner.name,
        place=at["place"],
        resource_free_at=resource_free_at,
    )
    return Assigned(
        job=job.id,
        place=at["place"],
        crawl=crawl.name,
        spider=crawl.spider,
        arguments=crawl.start_arguments or {},
        settings=crawl.start_settings or {},
        time_limit=_time_limit(connection, job, crawl.time_limit),
        schedule=job.schedule_id,
        due_at=None if job.due_at is None else job.due_at.isoformat(),
    )


def _time_limit(connection: Connection, job: _Job, of_crawl: timedelta | None) -> timedelta | None:
    """Return how long a process may run: as its schedule says, or else its crawl."""
    if job.schedule_id is None:
        return of_crawl
    limit: timedelta | None = connection.scalar(TIME_LIMIT, {"schedule": job.schedule_id})
    return of_crawl if limit is None else limit


def preempt(connection: Connection, runner_id: int, process_id: int) -> bool:
    """Tell a process to stop whose place may not have its crawl, or is wanted by a better one.

    Returns whether there was one; there may be more.
    """
    engine.hot_path(connection)
    lock_queue(connection)
    here = {"runner": runner_id, "process": process_id}
    runner = _runner(connection, here)
    if runner is None:
        return False
    misplaced = connection.execute(MISPLACED, {**here, **runner.asked}).first()
    if misplaced is not None:
        _stop(connection, runner, misplaced, why=misplaced.why)
        return True
    if not (runner.starts and runner.preempts):
        return False
    found = _preempted(connection, runner, here)
    if found is None:
        return False
    worst, better = found
    connection.execute(KEEP, {**here, "place": worst.number, "crawl": better.id})
    _stop(connection, runner, worst, better=better.name)
    return True


def _preempted(
    connection: Connection, runner: _Runner, here: dict[str, Any]
) -> tuple[Any, Any] | None:
    """Return the place whose process ends, and the crawl for which it does."""
    better = connection.execute(BEST_WAITING, runner.asked).first()
    if better is None:
        return None
    asked = {"project": runner.project, "tag": better.tag, "crawl": better.id}
    if connection.execute(FREE_ELSEWHERE, asked).scalar_one():
        return None
    limits = {"sticks": STICKS, "nice": better.nice, "queued_at": better.queued_at}
    worst = connection.execute(WORST, {**here, **limits, "crawl": better.id}).first()
    return None if worst is None else (worst, better)


def _stop(connection: Connection, runner: _Runner, place: Any, **because: str) -> None:
    """Tell the process of a place to stop: `better` is the crawl for which it does, or else `why`.

    Its job's end says why, as the event has it.
    """
    row = connection.execute(STOP, {"job": place.job_id, "why": Stop.PREEMPT}).first()
    if row is not None and row.worker_id is not None:
        connection.execute(notify.TELL, {"worker": row.worker_id})
    told = {"job": place.job_id, "runner": runner.name, "place": place.number, "better": None}
    told |= because
    note(connection, place.crawl_id, runner.by, Event.PREEMPTED, **told)
