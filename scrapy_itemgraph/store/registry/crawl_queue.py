"""The queue of crawls that people steer: who changes its order locks it, and notes what was done.

The lock is taken after the crawl's own and after items and queues, and before rows of `crawls`,
`places` and `jobs`. It is kept for milliseconds.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.exceptions import NotFoundError, OperationError
from scrapy_itemgraph.model import crawl_arguments, crawl_states, input_checks
from scrapy_itemgraph.model.crawl_arguments import CrawlStart
from scrapy_itemgraph.model.crawl_states import Event, State
from scrapy_itemgraph.model.notices import Kind
from scrapy_itemgraph.store import notify, slots
from scrapy_itemgraph.store.crawl_events import lock_queue, note
from scrapy_itemgraph.store.registry import crawl_starts, jobs, notices, runs
from scrapy_itemgraph.tools.wording import closest, one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection

    from scrapy_itemgraph.model.crawl_states import Change, NewCrawl

RESOURCE = "resource"  # the kind of a limit that one process at a time has
LONGEST = 1000  # characters of a reason that are kept

NAMED = text("SELECT id, state FROM crawls WHERE name = :name")

# Kept from being deleted; states change under the queue's lock alone.
LOCK_CRAWL = text("SELECT FROM crawls WHERE id = :crawl FOR NO KEY UPDATE")

MANAGED = text("SELECT name FROM crawls WHERE state IS NOT NULL ORDER BY name LIMIT 1000")

ADD = text("""
    UPDATE crawls SET state = :state, state_reason = NULL, spider = :spider, project = :project,
        start_arguments = CAST(:start_arguments AS json),
        start_settings = CAST(:start_settings AS json),
        nice = :nice, concurrency = :concurrency, tag = :tag, note = :note, created_by = :by,
        queued_at = clock_timestamp(), time_limit = :time_limit, resource_id = :resource,
        keeps_fresh = :keeps_fresh
    WHERE id = :crawl
""")

CHANGE = text("""
    UPDATE crawls SET state = :state, state_reason = :reason,
        queued_at = CASE WHEN :requeue THEN clock_timestamp() ELSE queued_at END,
        next_at = CASE WHEN :state = 'active' THEN NULL ELSE next_at END,
        crashes = CASE WHEN :state = 'active' THEN 0 ELSE crashes END,
        crashed_at_pages = CASE WHEN :state = 'active' THEN NULL ELSE crashed_at_pages END
    WHERE id = :crawl
""")

# What has not begun is not begun any more.
CANCEL_PENDING = text("""
    UPDATE jobs SET state = 'cancelled', reason = :reason, ended_at = clock_timestamp(),
        updated_at = clock_timestamp()
    WHERE crawl_id = :crawl AND state = 'pending' AND ended_at IS NULL
""")

STOP_JOBS = text("""
    UPDATE jobs SET stop_wanted = :why, updated_at = clock_timestamp()
    WHERE crawl_id = :crawl AND state = 'running' AND ended_at IS NULL
""")

_PLAIN = {"nice", "concurrency", "tag", "note", "time_limit", "keeps_fresh"}
SETTABLE = frozenset({*_PLAIN, "resource", "start_settings"})

IS_KNOWN_TAG = text("""
    SELECT EXISTS (SELECT FROM runners r WHERE r.project = :project AND :tag = ANY (r.tags))
""")


class Managed(NamedTuple):
    """A crawl that people steer: its number, and its state."""

    id: int
    state: State


def managed(connection: Connection, name: str) -> Managed:
    """Return a crawl that people steer.

    Raises:
        NotFoundError: there is no such crawl, or nobody steers it; it says what to do.

    """
    row = connection.execute(NAMED, {"name": name}).first()
    if row is None:
        known = list(connection.execute(MANAGED).scalars())
        raise NotFoundError(
            f"there is no crawl {name!r}{closest(name, known)}; scrapy itemgraph crawls list shows "
            "all"
        )
    if row.state is None:
        raise NotFoundError(
            f"the crawl {name!r} is not in the queue: it was started by hand. scrapy itemgraph "
            "crawls add puts it there, with the spider and the arguments that it has"
        )
    return Managed(row.id, State(row.state))


def _own(connection: Connection, name: str) -> Managed:
    """Lock the queue and a crawl's row, and return the crawl; raises as `managed` does."""
    lock_queue(connection)
    crawl = managed(connection, name)
    connection.execute(LOCK_CRAWL, {"crawl": crawl.id})
    return crawl


def add(connection: Connection, new: NewCrawl, *, by: str) -> tuple[str, list[str]]:
    """Put a crawl into the queue; return its name, and what a person should know.

    A crawl that was started by hand with the same spider and arguments goes on as this one, and
    its processes count as its jobs.

    Raises:
        OperationError: the name, or the crawl, is in the queue already.
        InvalidIdError: it cannot be a crawl's name.

    """
    lock_queue(connection)
    counted, _ = crawl_arguments.counted(new.arguments, new.ignored)
    start = CrawlStart(spider=new.spider, given=counted, name=new.name)
    started = crawl_starts.make(connection, start)
    row = connection.execute(NAMED, {"name": started.name}).one()
    if row.state is not None:
        raise _is_there(started.name, row.state, is_named=new.name is not None)
    state = State.PAUSED if new.is_paused else State.ACTIVE
    state = State.FINISHED if new.is_scheduled else state
    given = {name: getattr(new, name) for name in ("spider", "project", *_PLAIN)} | {
        "crawl": row.id,
        "by": by,
        "state": state,
        "resource": _resource(connection, new.resource),
        "start_arguments": input_checks.dump_json(dict(new.arguments), "arguments"),
        "start_settings": input_checks.dump_json(dict(new.settings), "settings"),
    }
    connection.execute(ADD, given)
    terms = _terms(connection, row.id)
    note(connection, row.id, by, Event.ADDED, state=state, project=new.project, **terms)
    jobs.adopt(connection, row.id)
    notify.tell_runners(connection)
    warnings = list(started.warnings)
    tagged = {"project": new.project, "tag": new.tag}
    if new.tag is not None and not connection.execute(IS_KNOWN_TAG, tagged).scalar_one():
        warnings.append(
            f"no runner of the project {new.project!r} has the tag {new.tag!r} yet; it waits for "
            f"one: scrapy itemgraph work --tag {shlex.quote(new.tag)}"
        )
    return started.name, warnings


def _is_there(name: str, state: str, *, is_named: bool) -> OperationError:
    verb = {"paused": "resume", "aborted": "revive", "finished": "revive"}.get(state, "show")
    instead = "" if is_named else ", or give this one a NAME of its own"
    return OperationError(
        f"the crawl {name!r} is in the queue, and {state}; see scrapy itemgraph crawls {verb} "
        f"{shlex.quote(name)}{instead}"
    )


def _resource(connection: Connection, name: str | None) -> int | None:
    if name is None:
        return None
    key = (RESOURCE, name)
    return slots.intern_limits(connection, [key])[key]


TERMS = text("""
    SELECT c.nice, c.concurrency, c.tag, l.name AS resource, c.queued_at::text AS queued_at,
        c.next_at::text AS next_at
    FROM crawls c LEFT JOIN limits l ON l.id = c.resource_id WHERE c.id = :crawl
""")


def _terms(connection: Connection, crawl_id: int) -> Mapping[str, Any]:
    """Return all that the queue's order follows from, of one crawl."""
    return dict(connection.execute(TERMS, {"crawl": crawl_id}).mappings().one())


def change(
    connection: Connection,
    name: str,
    wanted: Change,
    *,
    by: str,
    reason: str | None = None,
    keeps_place: bool = False,
) -> State:
    """Pause a crawl, resume it, abort it or revive it; return its state from now on.

    A revived crawl gets a place at the end of the queue, unless it keeps its own.

    Raises:
        NotFoundError: there is no such crawl in the queue.
        OperationError: the change cannot be made in its state.

    """
    crawl = _own(connection, name)
    state, event = crawl_states.after(name, crawl.state, wanted)
    is_revived = wanted is crawl_states.Change.REVIVE
    if is_revived:
        runs.end_continued(connection, crawl.id)
    requeue = is_revived and not keeps_place
    put(connection, crawl.id, state, event, by=by, reason=reason, requeue=requeue)
    if state is State.ABORTED:
        notices.write(connection, crawl.id, Kind.ABORTED, crawl=name, reason=reason, by=by)
    return state


def put(
    connection: Connection,
    crawl_id: int,
    state: State,
    event: Event,
    *,
    by: str,
    reason: str | None = None,
    requeue: bool = False,
    **detail: Any,
) -> None:
    """Put a crawl into a state, and tell its processes; the transaction has the queue's lock."""
    said = None if reason is None else one_line(reason)[:LONGEST]
    given = {"crawl": crawl_id, "state": state, "reason": said, "requeue": requeue}
    connection.execute(CHANGE, given)
    if state is State.ABORTED:
        connection.execute(CANCEL_PENDING, {"crawl": crawl_id, "reason": "aborted"})
    if state in _STOPS:
        connection.execute(STOP_JOBS, {"crawl": crawl_id, "why": _STOPS[state]})
    terms = {**detail, **_terms(connection, crawl_id)}
    note(connection, crawl_id, by, event, state=state, reason=said, **terms)
    notify.tell_processes(connection, crawl_id)
    notify.tell_runners(connection)


_STOPS = {State.PAUSED: "pause", State.ABORTED: "abort"}


def set_terms(connection: Connection, name: str, changes: Mapping[str, Any], *, by: str) -> None:
    """Change a crawl's terms, those of `SETTABLE`; a resource is given by its name.

    Raises:
        NotFoundError: there is no such crawl in the queue.

    """
    crawl = _own(connection, name)
    assert set(changes) <= SETTABLE, changes
    given: dict[str, Any] = dict(changes)
    if "resource" in given:
        given["resource_id"] = _resource(connection, given.pop("resource"))
    if "start_settings" in given:
        given["start_settings"] = input_checks.dump_json(dict(given["start_settings"]), "settings")
    assigned = ", ".join(f"{name} = {_CASTS.get(name, ':{}').format(name)}" for name in given)
    statement = text(f"UPDATE crawls SET {assigned} WHERE id = :crawl")  # noqa: S608 - ours
    connection.execute(statement, {"crawl": crawl.id, **given})
    terms = _terms(connection, crawl.id)
    note(connection, crawl.id, by, Event.SET, changed=sorted(changes), **terms)
    notify.tell_processes(connection, crawl.id)
    notify.tell_runners(connection)


_CASTS = {"start_settings": "CAST(:{} AS json)"}
