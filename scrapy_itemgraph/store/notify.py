"""Notifications, each of a topic: a crawl, whose workers it wakes, one process, or all runners."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

if TYPE_CHECKING:
    from sqlalchemy import Connection

NOTIFY = text("SELECT pg_notify('itemgraph', CAST(:crawl AS text))")

TELL = text("SELECT pg_notify('itemgraph', 'process ' || CAST(:worker AS text))")

# Its processes, and those of the runners that run some of them.
TELL_PROCESSES = text("""
    SELECT pg_notify('itemgraph', 'process ' || CAST(p.id AS text)) FROM processes p
    WHERE p.stopped_at IS NULL AND (p.crawl_id = :crawl OR p.id IN (
        SELECT r.process_id FROM jobs j JOIN runners r ON r.id = j.runner_id
        WHERE j.crawl_id = :crawl AND j.ended_at IS NULL))
""")

RUNNERS = "runners"
TELL_RUNNERS = text("SELECT pg_notify('itemgraph', 'runners')")

TELL_RULES = text("SELECT pg_notify('itemgraph', 'rules ' || CAST(:crawl AS text))")

TELL_LOG = text("SELECT pg_notify('itemgraph', 'log ' || CAST(:job AS text))")


def of_crawl(crawl_id: int) -> str:
    """Return the topic of a crawl: there may be work."""
    return str(crawl_id)


def of_rules(crawl_id: int) -> str:
    """Return the topic of a crawl's rules: others have been put in force."""
    return f"rules {crawl_id}"


def of_process(process_id: int) -> str:
    """Return the topic of one process: what concerns it alone has changed."""
    return f"process {process_id}"


def of_log(job: int) -> str:
    """Return the topic of a job's log: somebody reads it, far from the file."""
    return f"log {job}"


def tell_processes(connection: Connection, crawl_id: int) -> None:
    """Tell all processes that run a crawl, and their runners, that they are to do otherwise."""
    connection.execute(TELL_PROCESSES, {"crawl": crawl_id})


def tell_rules(connection: Connection, crawl_id: int) -> None:
    """Tell the processes that run a crawl that its rules are others from now on."""
    connection.execute(TELL_RULES, {"crawl": crawl_id})


def tell_runners(connection: Connection) -> None:
    """Tell all runners that there may be something to start."""
    connection.execute(TELL_RUNNERS)


def tell_log(connection: Connection, job: int) -> None:
    """Tell a job's runner that somebody reads the job's log."""
    connection.execute(TELL_LOG, {"job": job})


def notify(connection: Connection, crawl_id: int) -> None:
    """Tell the idle workers of a crawl that there may be work."""
    connection.execute(NOTIFY, {"crawl": crawl_id})
