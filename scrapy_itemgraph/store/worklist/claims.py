"""Claims: work taken by workers, and given back."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.model.validators import Validators
from scrapy_itemgraph.model.work import MOST_TRIES, Claim, InFlight, Outcome, attempt_after
from scrapy_itemgraph.store import attempts, sql_conditions
from scrapy_itemgraph.store import in_flight as stored_flights
from scrapy_itemgraph.store.columns import columns, typed
from scrapy_itemgraph.store.items import lock_items, snapshots
from scrapy_itemgraph.store.queues import wake
from scrapy_itemgraph.store.sql_conditions import IS_STOPPED
from scrapy_itemgraph.store.worklist import refresh
from scrapy_itemgraph.store.worklist.admission import Admission
from scrapy_itemgraph.store.worklist.pick_work import OpenKind, SentTurns, WorkSearch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Connection, CursorResult

    from scrapy_itemgraph.model.limits import SlotTerms
    from scrapy_itemgraph.model.tasks import RegisteredTask
    from scrapy_itemgraph.store.worklist.admission import WorkRow

# What this worker may claim now: kinds of its tasks, declared as it knows them, not stopped, and
# not left to others of newer code.
OPEN_KINDS = text(f"""
    SELECT k.id, k.task_id, k.limit_ids,
        EXISTS (SELECT FROM tasks x WHERE x.crawl_id = :crawl AND x.is_item_exclusive
            AND x.is_registered) AS any_exclusive,
        t.is_item_exclusive
    FROM unnest(CAST(:tasks AS int[]), CAST(:definitions AS uuid[])) AS mine(task_id, definition)
    JOIN tasks t ON t.id = mine.task_id AND t.definition = mine.definition
    JOIN kinds k ON k.task_id = t.id
    WHERE t.is_enabled AND t.is_registered AND :worker <> ALL (t.left_by)
        AND (t.max_failures IS NULL OR NOT {IS_STOPPED})
""")  # noqa: S608 - our own conditions

# A task whose requests are made by `request=` is told its metadata.
TAKE = text("""
    UPDATE work w
    SET token = taken.token, worker_id = :worker, claimed_at = clock_timestamp()
    FROM unnest(CAST(:items AS bigint[]), CAST(:tasks AS int[]), CAST(:tokens AS uuid[]))
        AS taken(item_id, task_id, token)
    WHERE w.item_id = taken.item_id AND w.task_id = taken.task_id
    RETURNING w.item_id, w.task_id, w.token, w.claimed_at, w.is_refiled, w.request,
        (SELECT s.name FROM queues q JOIN limits s ON s.id = q.slot_id
            WHERE q.id = w.queue_id) AS slot,
        (SELECT r.invalidated_at FROM results r
            WHERE r.item_id = w.item_id AND r.task_id = w.task_id) AS invalidated_at,
        CASE WHEN w.task_id = ANY(CAST(:told AS int[])) THEN (SELECT r.metadata FROM results r
            WHERE r.item_id = w.item_id AND r.task_id = w.task_id) END AS metadata
""")

# Claims a pair for a transaction that is undone: whoever has it, and also one that is not
# outstanding.
TAKE_ANYWAY = text("""
    INSERT INTO work AS w (item_id, task_id, crawl_id, queue_id, kind_id, is_stale, nice,
        worker_id, token, claimed_at)
    VALUES (:item, :task, :crawl, 0, 0, false, 0, :worker, :token, clock_timestamp())
    ON CONFLICT (item_id, task_id) DO UPDATE SET worker_id = excluded.worker_id,
        token = excluded.token, claimed_at = excluded.claimed_at
    RETURNING w.token, w.tries, w.claimed_at,
        (SELECT s.name FROM items i JOIN limits s ON s.id = i.slot_id
            WHERE i.id = w.item_id) AS slot,
        (SELECT r.invalidated_at FROM results r
            WHERE r.item_id = w.item_id AND r.task_id = w.task_id) AS invalidated_at,
        (SELECT r.metadata FROM results r
            WHERE r.item_id = w.item_id AND r.task_id = w.task_id) AS metadata
""")

# Takes the token off claims that are given back or tried again; the fence is in the row itself. A
# try that came to its end ends a row of deaths.
# Tries below zero are attempts that are left. The last one is not counted away: at zero the run
# would not wait for work that comes later. Where a page is not ready, it is asked from its own
# request on, and not from where that was redirected.
GIVE_BACK = text(f"""
    UPDATE work w
    SET token = NULL, worker_id = NULL, claimed_at = NULL, not_before = ended.not_before,
        tries = CASE
            WHEN ended.attempts_left > 0 THEN - ended.attempts_left
            ELSE least(w.tries + ended.tries, CASE WHEN w.tries < 0 THEN -1 ELSE {MOST_TRIES} END)
        END,
        request = CASE WHEN ended.attempts_left > 0 THEN NULL ELSE w.request END,
        alone_deaths = CASE WHEN ended.tries > 0 THEN 0 ELSE w.alone_deaths END,
        alone_stalls = CASE WHEN ended.tries > 0 THEN 0 ELSE w.alone_stalls END
    FROM unnest(CAST(:items AS bigint[]), CAST(:tasks AS int[]), CAST(:tokens AS uuid[]),
        CAST(:tries AS int[]), CAST(:not_before AS timestamptz[]), CAST(:left AS int[]))
        AS ended(item_id, task_id, token, tries, not_before, attempts_left)
    WHERE w.item_id = ended.item_id AND w.task_id = ended.task_id AND w.token = ended.token
    RETURNING w.item_id, w.task_id, w.queue_id, ended.token
""")  # noqa: S608 - our own number

REFILE = text("""
    UPDATE work w
    SET token = NULL, worker_id = NULL, claimed_at = NULL, queue_id = :queue, is_refiled = true
    WHERE w.item_id = :item AND w.task_id = :task AND w.token = :token
""")


DROP = text("""
    DELETE FROM work w
    USING unnest(CAST(:items AS bigint[]), CAST(:tasks AS int[])) AS gone(item_id, task_id)
    WHERE w.item_id = gone.item_id AND w.task_id = gone.task_id
""")


DEPTHS = text("""
    SELECT d.item_id, d.depth FROM unnest(CAST(:items AS bigint[])) AS wanted(id)
    JOIN depths d ON d.item_id = wanted.id AND d.depth < 2147483647
""")

# The validators of successful results. A page of a plain callback needs its kept links, too;
# without them it is fetched in full.
VALIDATORS = text("""
    SELECT r.item_id, r.task_id, r.validators
    FROM unnest(CAST(:items AS bigint[]), CAST(:tasks AS int[]), CAST(:versions AS text[]))
        AS wanted(item_id, task_id, version)
    JOIN results r ON r.item_id = wanted.item_id AND r.task_id = wanted.task_id
    JOIN tasks t ON t.id = wanted.task_id
    WHERE r.validators IS NOT NULL AND r.is_successful AND r.task_version = wanted.version
        AND (NOT t.is_callback OR EXISTS (
            SELECT FROM page_links p
            WHERE p.item_id = wanted.item_id AND p.task_id = wanted.task_id OFFSET 0))
""")

# Waits for a claim of this worker that is under way, and holds further ones off.
HOLD_WORKER = text("SELECT p.id FROM processes p WHERE p.id = :worker FOR NO KEY UPDATE")

UNCLAIM = text("""
    UPDATE work w SET token = NULL, worker_id = NULL, claimed_at = NULL
    WHERE w.worker_id = :worker AND w.token = ANY(CAST(:tokens AS uuid[]))
    RETURNING w.item_id, w.queue_id
""")

RELEASE_ALL = text("""
    UPDATE work w SET token = NULL, worker_id = NULL, claimed_at = NULL
    WHERE w.worker_id = :worker AND w.token IS NOT NULL
    RETURNING w.item_id, w.queue_id
""")

# What a worker has to know before it claims.
BEFORE_CLAIM = text("""
    SELECT EXISTS (SELECT FROM cookies c WHERE c.crawl_id = :crawl) AS has_cookies,
        EXISTS (SELECT FROM logins l
            WHERE l.crawl_id = :crawl AND l.worker_id <> :worker) AS others_log_in,
        c.names_freed, c.state AS crawl_state, c.ruleset_id, c.tracks_depth
    FROM (SELECT) AS one LEFT JOIN crawls c ON c.id = :crawl
""")


class Sent(NamedTuple):
    """What a claim asks for before it reads any answer."""

    search: WorkSearch
    lives: CursorResult[*tuple[Any, ...]]
    kinds: CursorResult[*tuple[Any, ...]]
    turns: SentTurns | None


def send(
    connection: Connection,
    *,
    crawl_id: int,
    worker_id: int,
    tasks: Mapping[int, RegisteredTask],
    limit: int,
    alone: bool = False,
    admission: Admission | None = None,
) -> Sent:
    """Ask for what a claim has to know first, so that nothing of it is waited for alone."""
    search = WorkSearch(connection, crawl_id, worker_id, admission or Admission())
    return Sent(
        search,
        sql_conditions.send_lives(connection, worker_id),
        _send_kinds(connection, crawl_id, worker_id, tasks),
        None if alone else search.send_turns(limit),
    )


def claim(
    connection: Connection,
    *,
    crawl_id: int,
    worker_id: int,
    tasks: Mapping[int, RegisteredTask],
    limit: int,
    tokens: Sequence[uuid.UUID] = (),
    alone: bool = False,
    admission: Admission | None = None,
    in_flight: InFlight | None = None,
    ruleset_id: int | None = None,
    tracks_depth: bool = False,
    sent: Sent | None = None,
) -> list[Claim]:
    """Claim up to `limit` pieces of work, round robin over the crawl's queues.

    `tasks` has the worker's tasks by number. With `alone`, one piece that two workers died or
    stalled on, which is in flight at once, and nothing else is. `tokens` are new ones for each
    call, one for each claim that it may make; left out they are drawn here. Without `admission`
    nothing is limited. `in_flight` says which of the claims are in flight once this is committed;
    without it none of them is. They keep to the rules of `ruleset_id`. Where the crawl
    `tracks_depth`, each says how deep its page is. `sent` is what `send` returned for the same
    crawl, worker, tasks, limit and admission.
    """
    sent = sent or send(
        connection,
        crawl_id=crawl_id,
        worker_id=worker_id,
        tasks=tasks,
        limit=limit,
        alone=alone,
        admission=admission,
    )
    admission = sent.search.admission
    is_alive = sent.lives.first() is not None
    kinds = [
        kind
        for kind in typed(sent.kinds, OpenKind)
        if admission.is_open(kind.task_id, kind.limit_ids)
    ]
    if not is_alive or not kinds:
        return []
    search = replace(sent.search, kinds=kinds)
    found = search.suspect() if alone else search.find(limit, sent.turns)
    claims = _take(
        connection, found, worker_id, tokens or new_tokens(len(found)), tasks, ruleset_id=ruleset_id
    )
    if tracks_depth and claims:
        claims = _with_depths(connection, claims)
    if any(tasks[one.task_id].revalidates for one in claims):
        claims = _with_validators(connection, claims, tasks)
    if alone:
        in_flight = InFlight(room=len(claims))
    if not claims or in_flight is None:
        return claims
    return _put_in_flight(connection, worker_id, claims, in_flight, admission.slot_terms)


def _with_depths(connection: Connection, claims: Sequence[Claim]) -> list[Claim]:
    """Return claims with the depths of their pages; 0 where none is known yet."""
    rows = connection.execute(DEPTHS, {"items": sorted({one.item_id for one in claims})})
    depths = {row.item_id: row.depth for row in rows}
    return [replace(one, depth=depths.get(one.item_id, 0)) for one in claims]


def _with_validators(
    connection: Connection, claims: Sequence[Claim], tasks: Mapping[int, RegisteredTask]
) -> list[Claim]:
    """Return claims with the validators of their results, if the task version is the same."""
    wanted = [one for one in claims if tasks[one.task_id].revalidates]
    given = columns(wanted, items="item_id", tasks="task_id", versions="version")
    rows = connection.execute(VALIDATORS, given)
    found = {(row.item_id, row.task_id): Validators.read(row.validators) for row in rows}
    return [replace(one, validators=found.get((one.item_id, one.task_id))) for one in claims]


def _put_in_flight(
    connection: Connection,
    worker_id: int,
    claims: Sequence[Claim],
    given: InFlight,
    slot_terms: SlotTerms,
) -> list[Claim]:
    """Write which claims are in flight beside what was; return the claims, those marked."""
    first = stored_flights.first_of(claims, given, slot_terms)
    if first:
        stored_flights.write(connection, worker_id, {*given.pairs, *first})
    return [
        replace(one, is_in_flight=True) if (one.item_id, one.task_id) in first else one
        for one in claims
    ]


def new_tokens(number: int) -> list[uuid.UUID]:
    """Draw tokens of claims: never a sequence's, which repeats itself after a crash."""
    return [uuid.uuid4() for _ in range(number)]


def unclaim(connection: Connection, tokens: Sequence[uuid.UUID], worker_id: int) -> int:
    """Undo a claim whose answer was lost; return how much it had taken."""
    connection.execute(HOLD_WORKER, {"worker": worker_id})
    rows = connection.execute(UNCLAIM, {"worker": worker_id, "tokens": tokens}).all()
    reopen(connection, [row.item_id for row in rows], [row.queue_id for row in rows])
    return len(rows)


def open_kinds(
    connection: Connection, crawl_id: int, worker_id: int, tasks: Mapping[int, RegisteredTask]
) -> list[OpenKind]:
    """Return the kinds of work that a worker with these tasks may claim now."""
    return typed(_send_kinds(connection, crawl_id, worker_id, tasks), OpenKind)


def _send_kinds(
    connection: Connection, crawl_id: int, worker_id: int, tasks: Mapping[int, RegisteredTask]
) -> CursorResult[*tuple[Any, ...]]:
    definitions = [one.definition for one in tasks.values()]
    given = {"crawl": crawl_id, "worker": worker_id, "tasks": list(tasks)}
    given["definitions"] = definitions
    return connection.execute(OPEN_KINDS, given)


def _take(
    connection: Connection,
    found: Sequence[WorkRow],
    worker_id: int,
    tokens: Sequence[uuid.UUID],
    tasks: Mapping[int, RegisteredTask],
    *,
    ruleset_id: int | None,
) -> list[Claim]:
    if not found:
        return []
    pairs = columns(found, items="item_id", tasks="task_id")
    told = [number for number, one in tasks.items() if one.has_request]
    given = {"tokens": list(tokens[: len(found)]), "worker": worker_id, "told": told, **pairs}
    answer = connection.execute(TAKE, given)
    items = snapshots(connection, pairs["items"])
    taken = {(row.item_id, row.task_id): row for row in answer}
    gone = [row for row in found if row.item_id not in items]
    if gone:
        connection.execute(DROP, columns(gone, items="item_id", tasks="task_id"))
    return [
        Claim(
            item_id=row.item_id,
            task_id=row.task_id,
            task=tasks[row.task_id].name,
            version=tasks[row.task_id].version,
            token=claimed.token,
            attempt=attempt_after(row.tries),
            attempts_left=-row.tries if row.tries < 0 else None,
            claimed_at=claimed.claimed_at,
            slot=claimed.slot,
            invalidated_at=claimed.invalidated_at,
            is_refiled=claimed.is_refiled,
            request=claimed.request,
            is_alone=row.is_suspect,
            item=items[row.item_id],
            metadata=(claimed.metadata or {}) if tasks[row.task_id].has_request else None,
            ruleset_id=ruleset_id,
        )
        for row in found
        if row.item_id in items
        for claimed in [taken[row.item_id, row.task_id]]
    ]


def release(connection: Connection, claims: Sequence[Claim], worker_id: int) -> int:
    """Give claims back in their place, with their tries; return how many were still ours."""
    given = give_back(connection, [Return(one, 0) for one in claims])
    items = reopen(connection, [row.item_id for row in given], [row.queue_id for row in given])
    ours = {row.token for row in given if row.item_id in items}
    released = [
        attempts.Attempt.of(one, Outcome.RELEASED, worker_id) for one in claims if one.token in ours
    ]
    attempts.record(connection, released)
    return len(given)


def release_all(connection: Connection, worker_id: int) -> int:
    """Give back whatever a worker still has; return how much that was."""
    connection.execute(HOLD_WORKER, {"worker": worker_id})
    rows = connection.execute(RELEASE_ALL, {"worker": worker_id}).all()
    reopen(connection, [row.item_id for row in rows], [row.queue_id for row in rows])
    return len(rows)


@dataclass(frozen=True, slots=True)
class Return:
    """A claim that is given back, or tried again from a moment on; so many tries are added.

    Unless `attempts_left` is 0, that many are left, whatever there were.
    """

    claim: Claim
    tries: int
    not_before: datetime | None = None
    attempts_left: int = 0


class Freed(NamedTuple):
    """Work that nobody claims any more, its queue, and the token of the claim that ended."""

    item_id: int
    task_id: int
    queue_id: int
    token: uuid.UUID


def give_back(connection: Connection, returns: Sequence[Return]) -> list[Freed]:
    """Take the token off claims; return those that were still ours.

    The caller locks and refreshes their items and wakes their queues, see `reopen`; then it records
    attempts at those that are still there.
    """
    if not returns:
        return []
    given = columns(
        returns,
        items="claim.item_id",
        tasks="claim.task_id",
        tokens="claim.token",
        tries="tries",
        not_before="not_before",
        left="attempts_left",
    )
    return typed(connection.execute(GIVE_BACK, given), Freed)


def reopen(connection: Connection, item_ids: Sequence[int], queue_ids: Iterable[int]) -> set[int]:
    """Let work that lost its token be found again, or be gone if it no longer stands.

    Returns the items that exist.
    """
    items = set(lock_items(connection, item_ids))
    refresh.refresh(connection, item_ids)
    wake(connection, queue_ids)
    return items


def refile(connection: Connection, one: Claim, queue_id: int, worker_id: int) -> bool:
    """Give a claim back into another queue, that of the slot its request really has."""
    row = {"item": one.item_id, "task": one.task_id, "token": one.token, "queue": queue_id}
    if not connection.execute(REFILE, row).rowcount:
        return False
    if reopen(connection, [one.item_id], [queue_id]):
        attempts.record(connection, [attempts.Attempt.of(one, Outcome.RELEASED, worker_id)])
    return True


class BeforeClaim(NamedTuple):
    """What a worker knows of its crawl before it claims; `names_freed` counts commits.

    `crawl_state` is that of `model.crawl_states`, None where nobody steers the crawl. `ruleset_id`
    is that of the rules in force, None where it never had any.
    """

    has_cookies: bool
    others_log_in: bool
    names_freed: int
    crawl_state: str | None
    ruleset_id: int | None
    tracks_depth: bool = False


def before_claim(connection: Connection, crawl_id: int, worker_id: int) -> BeforeClaim:
    """Return what a worker has to know of its crawl before it claims."""
    return read_before_claim(send_before_claim(connection, crawl_id, worker_id))


def send_before_claim(
    connection: Connection, crawl_id: int, worker_id: int
) -> CursorResult[*tuple[Any, ...]]:
    """Ask for the same; `read_before_claim` reads the answer."""
    return connection.execute(BEFORE_CLAIM, {"crawl": crawl_id, "worker": worker_id})


def read_before_claim(answer: CursorResult[*tuple[Any, ...]]) -> BeforeClaim:
    """Read the answer to `send_before_claim`."""
    row = answer.one()
    return BeforeClaim(
        has_cookies=row.has_cookies,
        others_log_in=row.others_log_in,
        names_freed=row.names_freed or 0,
        crawl_state=row.crawl_state,
        ruleset_id=row.ruleset_id,
        tracks_depth=bool(row.tracks_depth),
    )
