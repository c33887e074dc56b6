"""Work in each of its states, a page at a time, by indexes that have it in its order."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.exceptions import NotFoundError, OperationError
from scrapy_itemgraph.model.set_aside import Hold
from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store.admin.outstanding import FIRST, Place, in_turn
from scrapy_itemgraph.store.failures import PAGE
from scrapy_itemgraph.store.sql_conditions import IS_GONE, IS_HELD

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Connection


MOST_LOOKED_AT = 20_000  # pairs that are held, where only a slot's are asked for

# Before all pairs, and how large the parts of a place may be.
_FIRST_PAIR = {"item_id": 0, "task_id": 0}
_MOST = {"item_id": 2**63, "task_id": 2**31, "is_stale": 2, "nice": 2**31, "seq": 2**63}


class WorkState(StrEnum):
    """What keeps work from being done just now, if anything; outstanding work is the first two."""

    READY = "ready"
    DELAYED = "delayed"
    CLAIMED = "claimed"
    HELD = "held"
    GONE = "gone"
    SKIPPED = "skipped"
    STASHED = "stashed"
    LEFT = "left"


_COLUMNS = f"""i.name AS item, {PAGE}, t.name AS task, w.is_stale, w.nice, w.tries, w.deaths,
        w.stalls, w.not_before, s.name AS slot"""

# Claimed work, by its workers: that is the index of it.
CLAIMED = text(f"""
    SELECT {_COLUMNS}, w.claimed_at, w.worker_id AS worker, w.item_id, w.task_id
    FROM (
        SELECT w.* FROM processes o CROSS JOIN LATERAL (
            SELECT w.* FROM work w WHERE w.worker_id = o.id AND w.token IS NOT NULL OFFSET 0) AS w
        JOIN queues q ON q.id = w.queue_id
        WHERE o.crawl_id = :crawl AND (CAST(:task AS int) IS NULL OR w.task_id = :task)
            AND (CAST(:slot AS int) IS NULL OR q.slot_id = :slot)
            AND (w.item_id, w.task_id) > (:item_id, :task_id)
        ORDER BY w.item_id, w.task_id LIMIT :limit) AS w
    JOIN tasks t ON t.id = w.task_id
    JOIN items i ON i.id = w.item_id
    JOIN queues q ON q.id = w.queue_id
    JOIN limits s ON s.id = q.slot_id
    ORDER BY w.item_id, w.task_id
""")  # noqa: S608 - our own columns

# Of a slot so many pairs are looked at, in their order, and the last of them is told as well: no
# index knows the slots of pairs that are held.
_HELD = f"""
    WITH looked AS MATERIALIZED (
        SELECT r.* FROM tasks t CROSS JOIN LATERAL (
            SELECT r.task_id, r.item_id, t.slot_id FROM results r
            WHERE r.task_id = t.id AND {{held}}
                AND (r.task_id, r.item_id) > (:task_id, :item_id)
            ORDER BY r.task_id, r.item_id
            LIMIT CASE WHEN CAST(:slot AS int) IS NULL THEN :limit ELSE :most END) AS r
        WHERE t.crawl_id = :crawl AND (CAST(:task AS int) IS NULL OR t.id = :task)
        ORDER BY r.task_id, r.item_id
        LIMIT CASE WHEN CAST(:slot AS int) IS NULL THEN :limit ELSE :most END),
    found AS MATERIALIZED (
        SELECT l.* FROM looked l
        WHERE CAST(:slot AS int) IS NULL OR coalesce(l.slot_id, (
            SELECT i.slot_id FROM items i WHERE i.id = l.item_id)) = :slot
        LIMIT :limit)
    SELECT i.name AS item, {PAGE}, t.name AS task, r.completed_at IS NOT NULL AS is_stale,
        coalesce(i.nice, t.nice) AS nice, s.name AS slot, r.item_id, r.task_id,
        stopped.item_id AS last_item_id, stopped.task_id AS last_task_id
    FROM (SELECT) AS always
    LEFT JOIN (
        SELECT * FROM looked ORDER BY task_id, item_id OFFSET :most - 1) AS stopped ON true
    LEFT JOIN found f ON true
    LEFT JOIN results r ON r.item_id = f.item_id AND r.task_id = f.task_id
    LEFT JOIN tasks t ON t.id = r.task_id
    LEFT JOIN items i ON i.id = r.item_id
    LEFT JOIN limits s ON s.id = coalesce(t.slot_id, i.slot_id)
    ORDER BY r.task_id, r.item_id
"""  # noqa: S608

# Pairs that are held by a failure or refusal, or because somebody gave them up: no work at all.
HELD = text(_HELD.format(held=IS_HELD))

# Pairs whose pages said that they are no more.
GONE = text(_HELD.format(held=IS_GONE))

# Pairs that are set aside, whatever their results say.
_SET_ASIDE = {WorkState(why): text(_HELD.format(held=f"r.hold = '{why}'")) for why in Hold}

_STATEMENTS = {
    WorkState.CLAIMED: CLAIMED,
    WorkState.HELD: HELD,
    WorkState.GONE: GONE,
    **_SET_ASIDE,
}

SLOT = text("SELECT id FROM limits WHERE kind = 'slot' AND name = :name")


class WorkRow(NamedTuple):
    """Work in a state; `url` and `method` are those of a request, `slot` where it waits.

    `claimed_at` and `worker` are those of a claim, None of other work.
    """

    item: str
    url: str | None
    method: str | None
    task: str
    slot: str
    state: WorkState
    is_stale: bool
    nice: int
    tries: int
    deaths: int
    stalls: int
    not_before: datetime | None
    claimed_at: datetime | None
    worker: int | None


class WorkPage(NamedTuple):
    """Some work, and where to go on; `after` is None where there is no more.

    Of a slot's held or gone work a page may have few rows, or none, though it goes on.
    """

    rows: list[WorkRow]
    after: str | None


def page(
    connection: Connection,
    crawl_id: int,
    *,
    task: str | None,
    task_id: int | None,
    tag: str | None,
    slot: str | None,
    state: str | None,
    after: str | None,
    limit: int,
) -> WorkPage:
    """Return a page of work in a state; without one, of what is outstanding, in its order.

    With `tag` that of items which have it, for tasks that it calls for; of outstanding work alone.

    Raises:
        OperationError: there is no such state, it has none by tag, or `after` is of none of these
            pages.
        NotFoundError: no work has named the slot.

    """
    if state is not None and state not in set(WorkState):
        known = ", ".join(WorkState)
        raise OperationError(f"there is no state {state!r}; the states are {known}")
    if tag is not None and state in _STATEMENTS:
        raise OperationError(
            f"work of a tag is listed while nobody has claimed it, and not {state}; "
            "leave the state or the tag out"
        )
    slot_id = _slot_id(connection, slot)
    if state in _STATEMENTS:
        given = {"crawl": crawl_id, "slot": slot_id, "task": task_id}
        return _by_pair(connection, WorkState(state), given, after, limit)
    is_stale, nice, seq = _read(after, FIRST._asdict())
    found = in_turn(
        connection,
        crawl_id,
        task=task,
        tag=tag,
        limit=limit + 1,
        after=Place(bool(is_stale), nice, seq),
        slot_id=slot_id,
        ready=state != WorkState.DELAYED,
        delayed=state != WorkState.READY,
    )
    rows = [
        _row(one, WorkState.READY if one.not_before is None else WorkState.DELAYED)
        for one in found[:limit]
    ]
    end = found[limit - 1] if len(found) > limit else None
    return WorkPage(rows, None if end is None else json.dumps([end.is_stale, end.nice, end.seq]))


def _by_pair(
    connection: Connection,
    state: WorkState,
    given: Mapping[str, Any],
    after: str | None,
    limit: int,
) -> WorkPage:
    """Return what is claimed, held or gone, by item and task."""
    engine.hot_path(connection)
    item_id, task_id = _read(after, _FIRST_PAIR)
    place = {"item_id": item_id, "task_id": task_id, "limit": limit + 1}
    most = {"most": max(MOST_LOOKED_AT, limit + 1)}
    bound = {**given, **place, **(most if state is not WorkState.CLAIMED else {})}
    found = connection.execute(_STATEMENTS[state], bound).all()
    listed = [one for one in found if one.item is not None]
    rows = [_row(one, state) for one in listed[:limit]]
    end = _looked_up_to(found)
    if len(listed) > limit:
        end = (listed[limit - 1].item_id, listed[limit - 1].task_id)
    return WorkPage(rows, None if end is None else json.dumps(end))


def _looked_up_to(found: Sequence[Any]) -> tuple[int, int] | None:
    """Return the last pair that was looked at, if there may be others behind it."""
    last = getattr(found[0], "last_item_id", None) if found else None
    return None if last is None else (last, found[0].last_task_id)


def _slot_id(connection: Connection, slot: str | None) -> int | None:
    if slot is None:
        return None
    number: int | None = connection.execute(SLOT, {"name": slot}).scalar()
    if number is None:
        raise NotFoundError(f"no work has named the slot {slot!r}")
    return number


def _read(after: str | None, first: Mapping[str, int]) -> tuple[int, ...]:
    """Return the place that `after` stands for; the names of its parts say how large they are."""
    if after is None:
        return tuple(first.values())
    try:
        place = json.loads(after)
    except ValueError:
        place = None
    is_place = isinstance(place, list) and len(place) == len(first)
    if not is_place or not all(
        isinstance(one, int) and -_MOST[name] <= one < _MOST[name]
        for one, name in zip(place, first, strict=True)
    ):
        raise OperationError(f"{after!r:.80} is no place to go on from; leave it out to begin anew")
    return tuple(place)


def _row(found: Any, state: WorkState) -> WorkRow:
    known: dict[str, Any] = {name: getattr(found, name, None) for name in WorkRow._fields}
    known |= {name: known[name] or 0 for name in ("tries", "deaths", "stalls")}
    return WorkRow(**{**known, "state": state})
