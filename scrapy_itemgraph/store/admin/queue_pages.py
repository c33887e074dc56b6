"""The queue of crawls page by page, in the order of its turns, each with why it waits."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from scrapy_itemgraph.exceptions import ItemGraphError, OperationError
from scrapy_itemgraph.model import crawl_waits, input_checks, moments
from scrapy_itemgraph.model.crawl_states import STATE_EVENTS, CrawlEvent, State
from scrapy_itemgraph.model.crawl_waits import RunnerView, Waits
from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store.admin import queue_reports
from scrapy_itemgraph.store.sql_conditions import IS_DEAD

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy import Connection, Row

    from scrapy_itemgraph.model.crawl_states import ManagedCrawl

LOOKED_AT = 5000  # crawls that a page is chosen from by their tag

# Each follows an index to the page, and on it.
ACTIVE = text("""
    SELECT id, name, tag, project, nice, queued_at FROM crawls
    WHERE state = 'active' AND (CAST(:id AS int) IS NULL
        OR (project, nice, queued_at, id) > (:project, :nice, CAST(:queued_at AS timestamptz), :id))
    ORDER BY project, nice, queued_at, id LIMIT :limit
""")
OTHERS = text("""
    SELECT id, name, tag, project, nice, queued_at FROM crawls
    WHERE state = :state AND id < coalesce(CAST(:id AS int), 2147483647)
    ORDER BY state DESC, id DESC LIMIT :limit
""")

EXISTS = text("""
    SELECT EXISTS (SELECT FROM crawls WHERE state >= '') OR EXISTS (SELECT FROM runners)
""")

# As `queue_reports.RUNNERS` sees them of one crawl; here each with its places.
RUNNERS = text(f"""
    SELECT r.project, r.name, r.tags, r.only_tagged, r.places, r.low,
        r.drains_since IS NOT NULL AS drains,
        ARRAY (SELECT coalesce(x.locked_to, 0) FROM places x
            WHERE x.runner_id = r.id AND x.crawl_id IS NULL) AS free,
        ARRAY (SELECT x.locked_to FROM places x
            WHERE x.runner_id = r.id AND x.locked_to IS NOT NULL) AS locked
    FROM runners r JOIN processes p ON p.id = r.process_id
    WHERE p.stopped_at IS NULL AND NOT {IS_DEAD}
    ORDER BY r.name
""")  # noqa: S608 - our own condition

# Of each crawl the schedule that is due next.
NEXT_DUE = text("""
    SELECT DISTINCT ON (s.crawl_id) c.name AS crawl, s.id, s.next_at
    FROM schedules s JOIN crawls c ON c.id = s.crawl_id
    WHERE s.crawl_id = ANY (:crawls) AND s.is_enabled AND s.next_at IS NOT NULL
    ORDER BY s.crawl_id, s.next_at, s.id
""")

USERS_OF_RESOURCES = text("""
    SELECT l.name AS resource, c.id, c.name
    FROM jobs j JOIN crawls c ON c.id = j.crawl_id JOIN limits l ON l.id = c.resource_id
    WHERE j.ended_at IS NULL AND j.state = 'running'
    ORDER BY c.id
""")

INTO_STATES = text("""
    SELECT c.name AS crawl, e.id, e.at, e.by, e.what, e.detail
    FROM crawls c CROSS JOIN LATERAL (
        SELECT * FROM crawl_events e
        WHERE e.crawl_id = c.id AND e.what = ANY (:whats) ORDER BY e.id DESC LIMIT 1) AS e
    WHERE c.id = ANY (:crawls)
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedCrawl:
    """A crawl of the queue; `why` it waits, or is not active; `since` when, and by whom.

    `due_at` is when a schedule starts it next.
    """

    crawl: ManagedCrawl
    why: str | None
    by: str | None
    since: datetime | None
    due_at: datetime | None


@dataclass(frozen=True, slots=True)
class QueuePage:
    """A part of the queue, and what to ask for as `after` for the next; None: there is none."""

    rows: Sequence[QueuedCrawl]
    next: str | None


def exists(connection: Connection) -> bool:
    """Tell whether the database has a crawl in the queue, or a runner."""
    found: bool = connection.execute(EXISTS).scalar_one()
    return found


def page(
    connection: Connection,
    states: Sequence[State],
    *,
    tag: str | None = None,
    after: str | None = None,
    limit: int = 100,
) -> QueuePage:
    """Return crawls in these states: active ones in the order of their turns, by project.

    After them those that are paused, aborted and finished, of each the newest first. With `tag`
    5,000 are looked at for those that have it, so a page may have fewer rows, and a `next`.

    Raises:
        OperationError: `after` is no place in the queue.

    """
    engine.hot_path(connection)
    begins = None if after is None else _read(after)
    found: list[Any] = []
    left = LOOKED_AT if tag is not None else limit
    for state in _from(begins, states):
        for row in _looked_at(connection, state, begins, left):
            left -= 1
            if tag is None or row.tag == tag:
                found.append(row)
            if left == 0 or len(found) == limit:
                return QueuePage(_described(connection, found), _written(state, row))
        begins = None
    return QueuePage(_described(connection, found), None)


@dataclass(frozen=True, slots=True)
class _Turn:
    """The turn of a crawl, after which a page begins."""

    state: State
    project: str
    nice: int
    queued_at: datetime
    id: int


def _from(turn: _Turn | None, states: Sequence[State]) -> Iterator[State]:
    """Yield the states that a page goes through, the active ones first."""
    every = list(State)
    begin = 0 if turn is None else every.index(turn.state)
    yield from (one for one in every[begin:] if one in states)


def _written(state: State, row: Any) -> str:
    return json.dumps([state, row.project, row.nice, row.queued_at.isoformat(), row.id])


def _read(after: str) -> _Turn:
    try:
        state, project, nice, queued_at, number = json.loads(after)
        for one in (nice, number):
            input_checks.check_nice(one)
        turn = _Turn(
            State(state),
            input_checks.check_text(project, "project"),
            int(nice),
            moments.check(datetime.fromisoformat(queued_at), "queued_at"),
            int(number),
        )
    except (ValueError, TypeError, AttributeError, ItemGraphError, RecursionError):
        raise OperationError(
            f"{after!r:.80} is no place in the queue; send what `next` has"
        ) from None
    return turn


def _looked_at(
    connection: Connection, state: State, turn: _Turn | None, limit: int
) -> Sequence[Row[Any]]:
    """Return crawls of a state, those after a turn that is in it."""
    given: dict[str, Any] = dict.fromkeys(("id", "project", "nice", "queued_at"))
    if turn is not None and turn.state is state:
        given = {name: getattr(turn, name) for name in given}
    if state is State.ACTIVE:
        return connection.execute(ACTIVE, {**given, "limit": limit}).all()
    return connection.execute(OTHERS, {"state": state, "id": given["id"], "limit": limit}).all()


def _described(connection: Connection, rows: Sequence[Row[Any]]) -> list[QueuedCrawl]:
    """Return crawls with why each waits, by a fixed number of statements."""
    if not rows:
        return []
    numbers = {row.name: row.id for row in rows}
    crawls = {one.name: one for one in queue_reports.named(connection, list(numbers))}
    now = connection.execute(queue_reports.NOW).scalar_one()
    events = _events(connection, list(numbers.values()))
    due = {
        row.crawl: row for row in connection.execute(NEXT_DUE, {"crawls": list(numbers.values())})
    }
    runners = connection.execute(RUNNERS).all()
    users = connection.execute(USERS_OF_RESOURCES).all()
    described = []
    for name in (one for one in numbers if one in crawls):
        crawl = crawls[name]
        waits = Waits(
            crawl=crawl,
            now=now,
            into_state=events.get(name),
            processes=crawl.jobs,
            runners=[_view(one, numbers[name]) for one in runners if one.project == crawl.project],
            resource_user=_user(users, crawl.resource, numbers[name]),
            schedule=due[name].id if name in due else None,
            due_at=due[name].next_at if name in due else None,
        )
        event = waits.into_state
        described.append(
            QueuedCrawl(
                crawl=crawl,
                why=crawl_waits.why(waits),
                by=None if event is None else event.by,
                since=None if event is None else event.at,
                due_at=waits.due_at,
            )
        )
    return described


def _events(connection: Connection, crawls: Sequence[int]) -> Mapping[str, CrawlEvent]:
    given = {"whats": list(STATE_EVENTS), "crawls": crawls}
    rows = connection.execute(INTO_STATES, given).mappings()
    return {row["crawl"]: CrawlEvent(**row) for row in rows}


def _view(runner: Row[Any], crawl: int) -> RunnerView:
    names = ("name", "tags", "only_tagged", "places", "low", "drains")
    return RunnerView(
        **{name: getattr(runner, name) for name in names},
        free=sum(locked_to in {0, crawl} for locked_to in runner.free),
        locked=sum(locked_to != crawl for locked_to in runner.locked),
    )


def _user(users: Sequence[Row[Any]], resource: str | None, crawl: int) -> str | None:
    """Return the crawl that has a resource, and is not this one."""
    if resource is None:
        return None
    return next((one.name for one in users if one.resource == resource and one.id != crawl), None)
