"""The queue of crawls as people see it: its order, a crawl's history, and why one waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.model.crawl_states import STATE_EVENTS, CrawlEvent, ManagedCrawl, State
from scrapy_itemgraph.model.crawl_waits import RunnerView, Waits
from scrapy_itemgraph.store.admin.limit_holders import HOLDER, Holder
from scrapy_itemgraph.store.columns import typed
from scrapy_itemgraph.store.registry.crawl_queue import managed
from scrapy_itemgraph.store.sql_conditions import IS_DEAD

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime

    from sqlalchemy import Connection, CursorResult

    from scrapy_itemgraph.model.crawl_states import Event

MOST = 1000  # crawls, or events, of one call

# Ended crawls may be a great many: they are listed by name, a page of them.
_LIST = """
    WITH queued AS (
        SELECT id, row_number() OVER (PARTITION BY project ORDER BY nice, queued_at, id) AS place
        FROM crawls WHERE state = 'active')
    SELECT c.name, c.state, c.state_reason, c.spider, c.project, c.start_arguments AS arguments,
        c.start_settings AS settings, c.nice, c.concurrency, c.tag, c.note, c.created_by,
        c.queued_at, c.next_at, c.time_limit, l.name AS resource, c.keeps_fresh, c.crashes,
        q.place,
        (SELECT count(*) FROM jobs j
            WHERE j.crawl_id = c.id AND j.ended_at IS NULL AND j.state = 'running') AS jobs,
        c.run
    FROM crawls c LEFT JOIN limits l ON l.id = c.resource_id LEFT JOIN queued q ON q.id = c.id
    WHERE {which}
    ORDER BY c.name LIMIT :limit
"""
OF_STATES = text(_LIST.format(which="c.state = ANY (CAST(:states AS text[])) AND c.name > :after"))
NAMED = text(_LIST.format(which="c.state IS NOT NULL AND c.name = ANY (CAST(:names AS text[]))"))

HISTORY = text("""
    SELECT e.id, c.name AS crawl, e.at, e.by, e.what, e.detail
    FROM crawl_events e JOIN crawls c ON c.id = e.crawl_id
    WHERE e.crawl_id = :crawl AND e.id < :before
        AND (CAST(:whats AS text[]) IS NULL OR e.what = ANY (:whats))
    ORDER BY e.id DESC LIMIT :limit
""")

PROCESSES = text("""
    SELECT j.id AS job, j.origin, r.name AS runner, j.place, j.host, j.process_id, j.started_at,
        j.stop_wanted
    FROM jobs j LEFT JOIN runners r ON r.id = j.runner_id
    WHERE j.crawl_id = :crawl AND j.ended_at IS NULL AND j.state = 'running'
    ORDER BY j.started_at, j.id
""")

LEFT = text(f"""
    SELECT j.id, j.host, j.process_id
    FROM jobs j LEFT JOIN runners r ON r.id = j.runner_id
    LEFT JOIN processes p ON p.id = r.process_id
    WHERE j.crawl_id = :crawl AND j.ended_at IS NULL AND j.started_at IS NOT NULL
        AND j.origin = 'runner' AND (j.place IS NULL OR p.id IS NULL OR {IS_DEAD})
    ORDER BY j.id
""")  # noqa: S608 - our own condition

RUNNERS = text(f"""
    SELECT r.name, r.tags, r.only_tagged, r.places, r.low, r.drains_since IS NOT NULL AS drains,
        (SELECT count(*) FROM places p
            WHERE p.runner_id = r.id AND p.crawl_id IS NULL
                AND (p.locked_to IS NULL OR p.locked_to = :crawl)) AS free,
        (SELECT count(*) FROM places p
            WHERE p.runner_id = r.id AND p.locked_to IS NOT NULL AND p.locked_to <> :crawl)
            AS locked
    FROM runners r JOIN processes p ON p.id = r.process_id
    WHERE r.project = :project AND p.stopped_at IS NULL AND NOT {IS_DEAD}
    ORDER BY r.name
""")  # noqa: S608 - our own condition

# Websites for which a worker of a crawl waits, and which a worker of another crawl has.
SLOTS_OF_OTHERS = text(f"""
    SELECT l.name AS slot, false AS is_own, {HOLDER}
    FROM processes own
    JOIN holdings waits ON waits.worker_id = own.id AND waits.units = 0
    JOIN limits l ON l.id = waits.limit_id AND l.kind = 'slot'
    JOIN holdings h ON h.limit_id = l.id AND h.units > 0
    JOIN processes o ON o.id = h.worker_id
    JOIN crawls c ON c.id = o.crawl_id
    WHERE own.crawl_id = :crawl AND own.stopped_at IS NULL AND o.crawl_id <> own.crawl_id
    ORDER BY l.name, h.worker_id LIMIT 5
""")  # noqa: S608 - our own columns

USERS_OF_RESOURCE = text("""
    SELECT c.name FROM crawls own JOIN crawls c ON c.resource_id = own.resource_id
    WHERE own.id = :crawl AND c.id <> :crawl AND EXISTS (
        SELECT FROM jobs j WHERE j.crawl_id = c.id AND j.ended_at IS NULL AND j.state = 'running')
    LIMIT 1
""")

NEXT_DUE = text("""
    SELECT id, next_at FROM schedules
    WHERE crawl_id = :crawl AND is_enabled AND next_at IS NOT NULL ORDER BY next_at, id LIMIT 1
""")

NOW = text("SELECT clock_timestamp()")


class RunningProcess(NamedTuple):
    """A process of a crawl: its job, who started it (`origin`), where it runs, and since when.

    `runner` and `place` are None unless a runner started it; `stop_wanted` is why it is told to
    stop.
    """

    job: int
    origin: str
    runner: str | None
    place: int | None
    host: str | None
    process_id: int | None
    started_at: datetime | None
    stop_wanted: str | None


def crawls(
    connection: Connection, states: Sequence[State], *, after: str = "", limit: int = MOST
) -> list[ManagedCrawl]:
    """Return crawls of the queue in these states, by name from `after` on."""
    given = {"states": list(states), "after": after, "limit": limit}
    return _read(connection.execute(OF_STATES, given))


def named(connection: Connection, names: Collection[str]) -> list[ManagedCrawl]:
    """Return those of some crawls that are in the queue, by name."""
    given = {"names": list(names), "limit": len(names)}
    return _read(connection.execute(NAMED, given))


def crawl(connection: Connection, name: str) -> ManagedCrawl:
    """Return one crawl of the queue.

    Raises:
        NotFoundError: there is none of this name.

    """
    managed(connection, name)
    (found,) = named(connection, [name])
    return found


def _read(rows: CursorResult[Any]) -> list[ManagedCrawl]:
    return [ManagedCrawl(**{**row, "state": State(row["state"])}) for row in rows.mappings()]


def history(
    connection: Connection,
    name: str,
    *,
    before: int | None = None,
    limit: int = MOST,
    whats: Collection[Event] | None = None,
) -> list[CrawlEvent]:
    """Return what happened to a crawl, the newest first, of events before a number.

    With `whats` those of these kinds.
    """
    crawl_id = managed(connection, name).id
    given = {
        "crawl": crawl_id,
        "before": 2**62 if before is None else before,
        "limit": limit,
        "whats": None if whats is None else list(whats),
    }
    return [CrawlEvent(**row) for row in connection.execute(HISTORY, given).mappings()]


def processes(connection: Connection, name: str) -> list[RunningProcess]:
    """Return the processes that run a crawl."""
    here = {"crawl": managed(connection, name).id}
    return typed(connection.execute(PROCESSES, here), RunningProcess)


def waits(connection: Connection, name: str) -> Waits:
    """Return all that decides whether a crawl of the queue runs, and where."""
    number = managed(connection, name).id
    one = crawl(connection, name)
    asked = {"crawl": number, "project": one.project}
    runners = [RunnerView(**row) for row in connection.execute(RUNNERS, asked).mappings()]
    event = history(connection, name, limit=1, whats=STATE_EVENTS)
    due = connection.execute(NEXT_DUE, {"crawl": number}).first()
    return Waits(
        crawl=one,
        now=connection.execute(NOW).scalar_one(),
        into_state=event[0] if event else None,
        processes=len(processes(connection, name)),
        runners=tuple(runners),
        resource_user=connection.execute(USERS_OF_RESOURCE, {"crawl": number}).scalar(),
        schedule=None if due is None else due.id,
        due_at=None if due is None else due.next_at,
        left=tuple(
            f"job {row.id} (process {row.process_id} on {row.host})"
            for row in connection.execute(LEFT, {"crawl": number})
        ),
        slots=tuple(
            f"it waits for the slot {slot!r}, which {holder} has, {holder.until}"
            for slot, *columns in connection.execute(SLOTS_OF_OTHERS, {"crawl": number})
            for holder in [Holder(*columns)]
        ),
    )
