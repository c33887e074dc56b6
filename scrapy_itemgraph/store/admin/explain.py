"""Why a task of an item runs next, or does not."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from scrapy_itemgraph.model.limits import LOOKAHEAD
from scrapy_itemgraph.model.work import ErrorRecord
from scrapy_itemgraph.store.admin.limits_report import kept, limit_name
from scrapy_itemgraph.store.admin.status import STATE
from scrapy_itemgraph.store.sql_conditions import COUNTED_FAILURES
from scrapy_itemgraph.tools import wording

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from sqlalchemy import Connection, Row

_SHORT = 10.0  # seconds that are told with a decimal

# What a result's state comes from.
_WHY = "t.version, r.task_version, r.completed_at, r.invalidated_at, r.expires_at, r.due_at"

FACTS = text(f"""
    SELECT t.id AS task_id, t.name AS task, t.is_enabled, t.is_registered,
        t.max_failures,
        ARRAY(SELECT tt.tag_name FROM task_tags tt WHERE tt.task_id = t.id ORDER BY 1) AS tags,
        ARRAY(SELECT g.tag_name FROM tags g WHERE g.item_id = :item ORDER BY 1) AS item_tags,
        {STATE} AS state, {_WHY},
        w.item_id IS NOT NULL AS is_outstanding, w.not_before, w.tries, w.deaths, w.stalls,
        w.is_suspect, w.claimed_at,
        (SELECT x.name FROM work v JOIN tasks x ON x.id = v.task_id
            WHERE v.item_id = :item AND v.task_id <> t.id AND v.token IS NOT NULL
                AND (x.is_item_exclusive OR t.is_item_exclusive)
            ORDER BY x.name LIMIT 1) AS blocked_by,
        w.worker_id, o.host, o.process_id, s.kind AS slot_kind, s.name AS slot,
        s.blocked_until, s.blocked_by AS slot_blocked_by,
        (SELECT f.id FROM failures f WHERE f.item_id = :item AND f.task_id = t.id
            AND f.handled_at IS NULL ORDER BY f.id DESC LIMIT 1) AS failure_id,
        (SELECT f.error FROM failures f WHERE f.item_id = :item AND f.task_id = t.id
            AND f.handled_at IS NULL ORDER BY f.id DESC LIMIT 1) AS error,
        (SELECT count(*) FROM ({COUNTED_FAILURES}) AS counted) AS open_failures,
        EXISTS (SELECT FROM sweeps v JOIN tags g ON g.tag_name = ANY (v.tags)
            WHERE v.crawl_id = t.crawl_id AND g.item_id = :item
                AND v.after_item_id < :item) AS is_swept,
        clock_timestamp() AS now
    FROM tasks t
    LEFT JOIN results r ON r.task_id = t.id AND r.item_id = :item
    LEFT JOIN work w ON w.task_id = t.id AND w.item_id = :item
    LEFT JOIN workers o ON o.id = w.worker_id
    LEFT JOIN queues q ON q.id = w.queue_id
    LEFT JOIN limits s ON s.id = q.slot_id
    WHERE t.crawl_id = :crawl AND (CAST(:task AS text) IS NULL OR t.name = :task)
    ORDER BY t.name
""")  # noqa: S608 - our own conditions

DEPENDENCIES = text(f"""
    SELECT td.task_id, t.name, {STATE} AS state, {_WHY}
    FROM task_dependencies td
    JOIN tasks t ON t.id = td.depends_on_id
    LEFT JOIN results r ON r.task_id = t.id AND r.item_id = :item
    WHERE td.task_id = ANY (CAST(:tasks AS int[]))
    ORDER BY t.name
""")  # noqa: S608 - our own columns


# The limits that an item's unclaimed work keeps to, its slot first, and who has them.
LIMITS = text("""
    SELECT w.task_id, l.id, l.kind, l.name, l.gap, l.concurrency, l.delay, l.set_gap,
        l.set_concurrency, l.crawl_delay,
        extract(epoch FROM clock_timestamp() - l.last_at) AS last_ago,
        h.worker_id, h.units, h.is_exclusive, o.host, o.process_id, c.name AS crawl,
        o.crawl_id = w.crawl_id AND h.until IS NULL AS is_own,
        extract(epoch FROM h.until - clock_timestamp()) AS free_in
    FROM work w
    JOIN queues q ON q.id = w.queue_id
    JOIN tasks t ON t.id = w.task_id
    JOIN kinds k ON k.id = w.kind_id
    JOIN limits l ON l.id = ANY (q.slot_id || t.limit_ids || k.limit_ids)
    LEFT JOIN holdings h ON h.limit_id = l.id AND h.units > 0
        AND (h.until IS NULL OR h.until > clock_timestamp())
    LEFT JOIN workers o ON o.id = h.worker_id
    LEFT JOIN crawls c ON c.id = o.crawl_id
    WHERE w.item_id = :item AND w.task_id = ANY (CAST(:tasks AS int[])) AND w.token IS NULL
    ORDER BY l.kind <> 'slot', l.kind, l.name, h.since, h.worker_id
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Whether a task of an item may be claimed now, and what decides."""

    task: str
    state: str
    is_eligible: bool
    reasons: tuple[str, ...]


def explain(
    connection: Connection, crawl_id: int, item_id: int, task: str | None = None
) -> list[Explanation]:
    """Explain one task of an item, or each that its tags call for or that has a result."""
    facts = connection.execute(FACTS, {"crawl": crawl_id, "item": item_id, "task": task}).all()
    on: dict[int, list[Row[Any]]] = {row.task_id: [] for row in facts}
    for row in connection.execute(DEPENDENCIES, {"item": item_id, "tasks": list(on)}):
        on[row.task_id].append(row)
    limits: dict[int, dict[int, list[Row[Any]]]] = {row.task_id: {} for row in facts}
    for row in connection.execute(LIMITS, {"item": item_id, "tasks": list(on)}):
        limits[row.task_id].setdefault(row.id, []).append(row)
    return [
        _explanation(row, on[row.task_id], list(limits[row.task_id].values()))
        for row in facts
        if task is not None or _is_called_for(row) or row.task_version is not None
    ]


def _is_called_for(row: Row[Any]) -> bool:
    return row.is_registered and not set(row.tags).isdisjoint(row.item_tags)


def _explanation(
    row: Row[Any], dependencies: list[Row[Any]], limits: list[list[Row[Any]]]
) -> Explanation:
    against = [
        *_against_outstanding(row, dependencies),
        *_against_claiming(row),
        *(reason for holders in limits for reason in _against_starting(holders)),
    ]
    why = row.state if row.completed_at is None else _why(row, row.now)
    reasons = against or [
        f"it is next in its queue of the slot {row.slot!r}: {why}",
        *(reason for holders in limits for reason in _for_starting(holders)),
    ]
    return Explanation(
        task=row.task, state=row.state, is_eligible=not against, reasons=tuple(reasons)
    )


def _why(row: Row[Any], now: datetime) -> str:
    """Say what makes a result stale, fresh, or not there yet."""
    if row.completed_at is None:
        return "it has not run yet"
    if row.task_version != row.version:
        return f"its result is of version {row.task_version!r}, not {row.version!r}"
    if row.invalidated_at is not None:
        return "it was expired by hand or by another task"
    if row.expires_at is None:
        return "its result never expires"
    seconds = (row.expires_at - now).total_seconds()
    if row.due_at is None:
        return f"its result expired {wording.format_period(-seconds)} ago"
    left = f"is fresh for {wording.format_period(seconds)} more"
    return (
        f"its result {left if seconds > 0 else 'has expired and becomes stale when a run starts'}"
    )


def _against_outstanding(row: Row[Any], dependencies: list[Row[Any]]) -> Iterator[str]:
    """Say what keeps the pair out of the worklist."""
    if not row.is_registered:
        yield "no spider declares this task any more"
    elif not _is_called_for(row):
        yield (
            f"the item has none of the tags {', '.join(row.tags)}; "
            f"it has {', '.join(row.item_tags) or 'no tags'}"
        )
    if row.state == "held":
        if row.failure_id is None:
            yield "it is held since a failure was handled without a retry; scrapy itemgraph expire"
        else:
            yield (
                f"it is held by failure {row.failure_id}: {_error(row)}; "
                f"scrapy itemgraph handle {row.failure_id}"
            )
    elif row.state == "fresh":
        yield _why(row, row.now)
    for dependency in dependencies:
        if dependency.state == "held":
            yield f"it depends on {dependency.name!r}, which is held by a failure"
        elif dependency.state != "fresh":
            why = _why(dependency, row.now)
            yield f"it depends on {dependency.name!r}, which is {dependency.state}: {why}"


def _against_claiming(row: Row[Any]) -> Iterator[str]:
    """Say what keeps outstanding work from being claimed now."""
    if row.worker_id is not None:
        since = wording.format_period((row.now - row.claimed_at).total_seconds())
        yield (
            f"worker {row.worker_id} (process {row.process_id} on {row.host}) has it since {since}"
        )
    if not row.is_enabled:
        yield f"the task is disabled; scrapy itemgraph enable {row.task}"
    if row.max_failures is not None and row.open_failures >= row.max_failures:
        yield (
            f"the task is stopped by {row.open_failures} open failures "
            f"(max_failures={row.max_failures}); handle them"
        )
    if row.not_before is not None and row.not_before > row.now:
        wait = wording.format_period((row.not_before - row.now).total_seconds())
        tried = f" after {row.tries} tries" if row.tries else ""
        yield f"it may not start for another {wait}{tried}"
    if row.is_outstanding and row.is_suspect:
        ends = ((row.deaths, "died"), (row.stalls, "stalled"))
        what = " and ".join(f"{number} workers {how}" for number, how in ends if number)
        yield f"{what} on it; it runs when a worker runs nothing else"
    if row.worker_id is None and row.blocked_by is not None:
        yield f'{row.blocked_by!r} of the item is claimed, and one of the two is exclusive="item"'
    if row.blocked_until is not None and row.blocked_until > row.now:
        by = row.slot_blocked_by
        name = limit_name(row.slot_kind, row.slot)
        yield (
            f"the slot {row.slot!r} is blocked until {row.blocked_until:%Y-%m-%d %H:%M:%S %Z} by "
            f"{'a person' if by == 'person' else f'the site ({by})'}; "
            f"scrapy itemgraph unblock {shlex.quote(name)}"
        )
    if row.is_swept and not row.is_outstanding:
        yield "a sweep after a change of the tasks has not reached the item yet"


def _against_starting(holders: list[Row[Any]]) -> Iterator[str]:
    """Say what keeps work from starting now under a limit; each row is one who has some of it."""
    limit = holders[0]
    terms = kept(limit)
    what = _what(limit)
    others = [row for row in holders if row.worker_id is not None and not row.is_own]
    dead = [row for row in others if row.free_in is not None]
    alone = next((row for row in others if row.is_exclusive and row.free_in is None), None)
    if alone is not None:
        yield f"{_who(alone)} has {what} for itself, until it gives way or has no work of it"
    elif dead and (terms.is_exclusive or any(row.is_exclusive for row in dead)):
        wait = _period(max(row.free_in for row in dead))
        yield f"{what} is free in {wait}: {_who(dead[0])} died, and its requests may still run"
    elif terms.concurrency is not None and sum(row.units for row in others) >= terms.concurrency:
        yield (
            f"{what} is used up: {terms.concurrency} at once, by "
            + ", ".join(f"{_who(row)}: {row.units}" for row in others)
        )
    due = 0.0 if limit.last_ago is None else terms.gap - float(limit.last_ago)
    if due > LOOKAHEAD:
        yield f"the next start in {what} is due in {_period(due)}: one every {_period(terms.meant)}"


def _for_starting(holders: list[Row[Any]]) -> Iterator[str]:
    """Say which worker of the crawl will start it, where it has a limit for itself."""
    own = next((row for row in holders if row.is_own and row.is_exclusive), None)
    if own is not None:
        yield f"{_who(own)} has {_what(own)} for itself, and is the one to start it"


def _what(row: Row[Any]) -> str:
    name = limit_name(row.kind, row.name)
    return f"the slot {row.name!r}" if row.kind == "slot" else f"the limit {name!r}"


def _who(row: Row[Any]) -> str:
    if row.host is None:
        return f"worker {row.worker_id}"
    return (
        f"worker {row.worker_id} of the crawl {row.crawl!r} (process {row.process_id} on "
        f"{row.host})"
    )


def _period(seconds: float) -> str:
    return f"{seconds:.1f}s" if 0 <= seconds < _SHORT else wording.format_period(seconds)


def _error(row: Row[Any]) -> str:
    return str(ErrorRecord.read(row.error or {})).strip()
