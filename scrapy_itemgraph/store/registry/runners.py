"""Runners: daemons that run processes of crawls; known by name, whichever process is it now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.model.crawl_states import Event
from scrapy_itemgraph.model.notices import Kind
from scrapy_itemgraph.postgres import server_clock
from scrapy_itemgraph.store import notify
from scrapy_itemgraph.store.crawl_events import lock_queue, note
from scrapy_itemgraph.store.registry import notices, processes
from scrapy_itemgraph.store.sql_conditions import IS_DEAD, IS_SURELY_DEAD

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

    from sqlalchemy import Connection

    from scrapy_itemgraph.model.runners import HostState, Terms
    from scrapy_itemgraph.store.registry.processes import NewProcess

# What runners are among processes.
KIND = "runner"
STOPPED = "stopped"  # why a process ended that was told to
_DIED = "died"

NAMED = text(f"""
    SELECT r.id, p.id AS process, p.process_id, p.host,
        p.id IS NOT NULL AND NOT {IS_DEAD} AS lives
    FROM runners r LEFT JOIN processes p ON p.id = r.process_id
    WHERE r.name = :name FOR NO KEY UPDATE OF r
""")  # noqa: S608 - our own condition

PUT = text("""
    INSERT INTO runners (name, process_id, project, tags, only_tagged, places, preempts, logs)
    VALUES (:name, :process, :project, CAST(:tags AS text[]), :only_tagged, :places, :preempts,
        :logs)
    ON CONFLICT (name) DO UPDATE SET process_id = EXCLUDED.process_id, project = EXCLUDED.project,
        tags = EXCLUDED.tags, only_tagged = EXCLUDED.only_tagged, places = EXCLUDED.places,
        preempts = EXCLUDED.preempts, logs = EXCLUDED.logs, drains_since = NULL, low = NULL
    RETURNING id
""")

# Its jobs go on as long as their processes live; nobody has a place for them.
LET_GO = text("""
    UPDATE jobs SET place = NULL, updated_at = clock_timestamp()
    WHERE runner_id = :runner AND ended_at IS NULL AND place IS NOT NULL
""")

EMPTY_PLACES = text("""
    UPDATE places SET crawl_id = NULL, job_id = NULL, since = NULL, kept_for = NULL
    WHERE runner_id = :runner
        AND (crawl_id IS NOT NULL OR job_id IS NOT NULL OR kept_for IS NOT NULL)
""")

MAKE_PLACES = text("""
    INSERT INTO places (runner_id, number) SELECT :runner, generate_series(1, :places)
    ON CONFLICT DO NOTHING
""")

DROP_PLACES = text("DELETE FROM places WHERE runner_id = :runner AND number > :places")

# What a runner still runs that was given up for dead, unless that is over by now.
TAKE_BACK = text("""
    WITH kept AS (
        UPDATE jobs j SET place = own.place, updated_at = clock_timestamp()
        FROM unnest(CAST(:jobs AS bigint[]), CAST(:places AS int[])) AS own(job, place)
        WHERE j.id = own.job AND j.ended_at IS NULL AND j.runner_id = :runner
        RETURNING j.id, j.place, j.crawl_id, j.started_at)
    UPDATE places p SET crawl_id = kept.crawl_id, job_id = kept.id, since = kept.started_at
    FROM kept WHERE p.runner_id = :runner AND p.number = kept.place
    RETURNING p.number, p.job_id
""")

REPORT = text("""
    UPDATE runners SET disk_free = :disk_free, disk_total = :disk_total,
        memory_free = :memory_free, load = :load, low = :low
    WHERE id = :runner AND process_id = :process
    RETURNING name
""")

# Locked, so that it stays so: no other process becomes the runner meanwhile.
IS_OWN = text("""
    SELECT EXISTS (
        SELECT FROM runners WHERE id = :runner AND process_id = :process FOR NO KEY UPDATE)
""")

LOW = text("SELECT low FROM runners WHERE id = :runner")

DRAIN = text("""
    UPDATE runners SET drains_since = CASE WHEN :drains
        THEN coalesce(drains_since, clock_timestamp()) END
    WHERE id = :runner AND (drains_since IS NOT NULL) <> :drains RETURNING name
""")

FREE_KEPT = text("UPDATE places SET kept_for = NULL WHERE runner_id = :runner")

# The dead among the runners that have something still.
GONE = text(f"""
    SELECT r.id, r.name, r.project, p.id AS process
    FROM runners r LEFT JOIN processes p ON p.id = r.process_id
    WHERE r.id = ANY (CAST(:runners AS int[])) AND r.id <> :own
        AND (p.id IS NULL OR {IS_SURELY_DEAD})
    ORDER BY r.id FOR NO KEY UPDATE OF r
""")  # noqa: S608 - our own condition


def register(
    connection: Connection,
    terms: Terms,
    *,
    host: str,
    process_id: int,
    lease: timedelta,
    running: Mapping[int, int],
) -> tuple[NewProcess, int]:
    """Register this process as a runner; return it, and the runner's number.

    `running` are the jobs that it runs, by place: of a runner that was given up for dead.

    Raises:
        OperationError: a living process is the runner of this name.

    """
    lock_queue(connection)
    known = connection.execute(NAMED, {"name": terms.name}).first()
    if known is not None and known.lives:
        raise OperationError(
            f"the runner {terms.name} runs already: process {known.process_id} on {known.host}; "
            "stop that first, or give this one a name of its own: work --name NAME"
        )
    process = processes.register(connection, KIND, host=host, process_id=process_id, lease=lease)
    given = {
        "name": terms.name,
        "process": process.id,
        "project": terms.project,
        "tags": list(terms.tags),
        "only_tagged": terms.only_tagged,
        "places": terms.places,
        "preempts": terms.preempts,
        "logs": terms.logs,
    }
    runner: int = connection.execute(PUT, given).scalar_one()
    if known is not None and known.process is not None:
        processes.stop(connection, known.process, _DIED)
    told = {name: given[name] for name in ("project", "tags", "only_tagged", "places", "preempts")}
    told["jobs"] = _make_places(connection, runner, terms.places, running)
    note(connection, None, _by(terms.name), Event.RUNNER_UP, runner=terms.name, host=host, **told)
    notify.tell_runners(connection)
    return process, runner


def _make_places(
    connection: Connection, runner: int, places: int, running: Mapping[int, int]
) -> dict[int, int]:
    """Make a runner's places; return the jobs that it has still, by place."""
    here = {"runner": runner, "places": places}
    connection.execute(LET_GO, here)
    connection.execute(DROP_PLACES, here)
    connection.execute(MAKE_PLACES, here)
    connection.execute(EMPTY_PLACES, here)
    if not running:
        return {}
    own = {"jobs": list(running.values()), "places": list(running)}
    kept = connection.execute(TAKE_BACK, {"runner": runner, **own}).all()
    return {row.number: row.job_id for row in kept}


def report(connection: Connection, runner: int, process: int, host: HostState) -> None:
    """Note how a runner's host is; where it became low, or well again, that is an event.

    Nothing is noted where another process is the runner by now.
    """
    before = connection.execute(LOW, {"runner": runner}).scalar()
    is_news = (before is None) != (host.low is None)
    if is_news:
        lock_queue(connection)
    given = {name: getattr(host, name) for name in ("disk_free", "disk_total", "memory_free")}
    asked = {**given, "load": host.load, "low": host.low, "runner": runner, "process": process}
    name = connection.execute(REPORT, asked).scalar()
    if is_news and name is not None:
        event = Event.HOST_WELL if host.low is None else Event.HOST_LOW
        note(connection, None, _by(name), event, runner=name, why=host.low)
        notify.tell_runners(connection)


def is_own(connection: Connection, runner: int, process: int) -> bool:
    """Lock a runner's row; tell whether a process is that runner still, and no other one."""
    return bool(connection.execute(IS_OWN, {"runner": runner, "process": process}).scalar_one())


def drain_itself(connection: Connection, runner: int, process: int) -> None:
    """Have a runner start nothing more, for its own process ends."""
    lock_queue(connection)
    if is_own(connection, runner, process):
        drain(connection, runner, drains=True)


def drain(connection: Connection, runner: int, *, by: str | None = None, drains: bool) -> bool:
    """Have a runner start nothing more, or start something again; False: it was so before."""
    lock_queue(connection)
    name = connection.execute(DRAIN, {"runner": runner, "drains": drains}).scalar()
    if name is None:
        return False
    connection.execute(FREE_KEPT, {"runner": runner})
    note(connection, None, by or _by(name), Event.RUNNER_DRAINS, runner=name, drains=drains)
    notify.tell_runners(connection)
    return True


def bury(connection: Connection, runners: Sequence[int], own: int, by: str) -> list[str]:
    """Take what dead runners had from them, if they are dead still; return their names.

    Their jobs go on as long as the jobs' own processes live.
    """
    lock_queue(connection)
    asked = {
        "runners": list(runners),
        "own": own,
        "untrusted": server_clock.untrusted(connection),
    }
    found = connection.execute(GONE, asked).all()
    for one in found:
        processes.stop(connection, one.process or 0, _DIED)
        leave(connection, one.id, one.name, by=by, why=_DIED)
        notices.write(connection, None, Kind.RUNNER_GONE, project=one.project, runner=one.name)
    return [one.name for one in found]


def leave(connection: Connection, runner: int, name: str, *, by: str, why: str) -> None:
    """Note that a runner is gone, and free its places; the transaction has the queue's lock."""
    here = {"runner": runner}
    connection.execute(LET_GO, here)
    connection.execute(EMPTY_PLACES, here)
    note(connection, None, by, Event.RUNNER_GONE, runner=name, why=why)
    notify.tell_runners(connection)


def stop(connection: Connection, runner: int, process: int, name: str) -> None:
    """Note that this runner ended in order, unless another process is the runner by now."""
    lock_queue(connection)
    processes.stop(connection, process, STOPPED)
    if is_own(connection, runner, process):
        leave(connection, runner, name, by=_by(name), why=STOPPED)


def _by(name: str) -> str:
    return f"runner {name}"


def named(connection: Connection, name: str) -> Any:
    """Return the row of a runner by its name, locked; None where there is none."""
    return connection.execute(NAMED, {"name": name}).first()
