"""Open failures, as people look for them: numbers first, then which are meant, then their rows.

A list is found by an index in its order. What no index knows, an error's type and text, is looked
at failure by failure, and of `LOOKED_AT` in a call at most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store.columns import typed
from scrapy_itemgraph.store.failures import (
    IS_MEANT,
    PAGE,
    OpenFailure,
    PairOfFailure,
    conditions,
    logged,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from sqlalchemy import Connection

    from scrapy_itemgraph.model.failure_filters import FailureFilter

MAX_ID = 2**63 - 1
LOOKED_AT = 5000  # failures in a call, about a fifth of a second
_AT_ONCE = 500

# Numbers of open failures in their order, of a task or of all the crawl's tasks. Each task has its
# failures and its refusals in this order in an index, and the first of each are compared.
# Compared as rows: where one task has all failures, equal tasks and an order by number would let
# the planner look for another's by going through all numbers.
_OF_TASKS = """
    SELECT f.id FROM tasks t
    CROSS JOIN (VALUES (false), (true)) AS kind(is_refusal)
    CROSS JOIN LATERAL (
        SELECT f.id FROM failures f
        WHERE f.handled_at IS NULL
            AND (f.task_id, f.is_refusal, f.id) >= (t.id, kind.is_refusal, :first)
            AND (f.task_id, f.is_refusal, f.id) <= (t.id, kind.is_refusal, :last)
        ORDER BY f.task_id {order}, f.is_refusal {order}, f.id {order}
        LIMIT :limit) AS f
    WHERE t.crawl_id = :crawl
        AND (CAST(:task AS text) IS NULL OR t.name = :task)
    ORDER BY f.id {order}
    LIMIT :limit
"""
OLDEST_OF_TASKS = text(_OF_TASKS.format(order="ASC"))
NEWEST_OF_TASKS = text(_OF_TASKS.format(order="DESC"))

# Numbers of open failures that are alike.
_OF_GROUP = """
    SELECT f.id FROM failures f
    WHERE f.handled_at IS NULL
        AND (f.fingerprint, f.id) >= (CAST(:group AS uuid), :first)
        AND (f.fingerprint, f.id) <= (CAST(:group AS uuid), :last)
    ORDER BY f.fingerprint {order}, f.id {order}
    LIMIT :limit
"""
OLDEST_OF_GROUP = text(_OF_GROUP.format(order="ASC"))
NEWEST_OF_GROUP = text(_OF_GROUP.format(order="DESC"))

# Those of some numbers that are open, of the crawl, and meant; in the order of the numbers.
# Each failure and task is looked up by its number: OFFSET 0 keeps other indexes out.
MEANT = text(f"""
    SELECT f.id, f.item_id, f.task_id
    FROM unnest(CAST(:failures AS bigint[])) WITH ORDINALITY AS looked(id, place)
    CROSS JOIN LATERAL (SELECT * FROM failures f WHERE f.id = looked.id OFFSET 0) AS f
    CROSS JOIN LATERAL (SELECT * FROM tasks t WHERE t.id = f.task_id OFFSET 0) AS t
    WHERE f.handled_at IS NULL AND t.crawl_id = :crawl
        AND (CAST(:task AS text) IS NULL OR t.name = :task)
        AND (CAST(:group AS uuid) IS NULL OR f.fingerprint = :group)
        AND {IS_MEANT}
    ORDER BY looked.place
""")  # noqa: S608 - our own condition

# The rows of some numbers, open or not, in the order of the numbers.
ROWS = text(f"""
    SELECT f.id, f.item_id, f.task_id, t.name AS task, i.name AS item, {PAGE}, f.is_refusal,
        f.error, f.occurred_at, CAST('[]' AS json) AS log, CAST(NULL AS json) AS page
    FROM unnest(CAST(:failures AS bigint[])) WITH ORDINALITY AS wanted(id, place)
    JOIN failures f ON f.id = wanted.id
    JOIN tasks t ON t.id = f.task_id
    JOIN items i ON i.id = f.item_id
    ORDER BY wanted.place
""")  # noqa: S608 - our own columns

# What else is known of one failure of a crawl: its task, its attempt while that is kept.
ONE = text("""
    SELECT t.spider, t.is_callback, f.fingerprint AS group, f.handled_at, f.handled_by, (
        SELECT a.number FROM attempts a
        WHERE a.item_id = f.item_id AND a.task_id = f.task_id
            AND a.ended_at = f.occurred_at AND a.outcome IN ('failed', 'refused')
        ORDER BY a.id DESC LIMIT 1) AS attempt
    FROM failures f JOIN tasks t ON t.id = f.task_id
    WHERE f.id = :failure AND t.crawl_id = :crawl
""")

# Open failures of an item: OFFSET 0 keeps the indexes of open ones out.
OF_ITEM = text("""
    SELECT t.name, f.id
    FROM (SELECT * FROM failures f WHERE f.item_id = :item OFFSET 0) AS f
    JOIN tasks t ON t.id = f.task_id
    WHERE f.handled_at IS NULL
    ORDER BY f.id
""")

CRAWL = text("""
    SELECT c.name FROM failures f JOIN tasks t ON t.id = f.task_id
    JOIN crawls c ON c.id = t.crawl_id
    WHERE f.id = :failure
""")

NEWEST = text("SELECT coalesce(max(id), 0) FROM failures")


class Looked(NamedTuple):
    """Open failures that are meant, and the number after which there may be more (None: no)."""

    found: list[PairOfFailure]
    next: int | None


class FailurePage(NamedTuple):
    """Open failures, and the number after which there may be more; None: there are none.

    With `is_cut` the search went no further than that number, though there was room for more.
    """

    rows: list[OpenFailure]
    next: int | None
    is_cut: bool


class FailureDetails(NamedTuple):
    """A failure, open or handled, with all that is known of it.

    `attempt` is the number of the try, from 1, while that is kept; `is_callback` tells a plain
    callback from a task. `handled_at` and `handled_by` are None as long as it is open.
    """

    failure: OpenFailure
    spider: str
    is_callback: bool
    group: UUID
    attempt: int | None
    handled_at: datetime | None
    handled_by: str | None


def look(
    connection: Connection,
    crawl_id: int,
    which: FailureFilter,
    *,
    after: int = 0,
    last: int = MAX_ID,
    limit: int = 1000,
    newest_first: bool = False,
) -> Looked:
    """Return open failures, the oldest first or the newest: those after a number of the order.

    `last` is the highest number that counts. A search looks at `LOOKED_AT` of them.
    """
    engine.hot_path(connection)
    most = LOOKED_AT if which.is_search else limit
    bounds = (1, min(last, after - 1) if after else last) if newest_first else (after + 1, last)
    numbers = _numbers(connection, crawl_id, which, bounds, most, newest_first=newest_first)
    found: list[PairOfFailure] = []
    for start in range(0, len(numbers), _AT_ONCE):
        found += meant(connection, crawl_id, which, numbers[start : start + _AT_ONCE])
        if len(found) >= limit:
            return Looked(found[:limit], found[limit - 1].id)
    return Looked(found, numbers[-1] if len(numbers) == most else None)


def _numbers(
    connection: Connection,
    crawl_id: int,
    which: FailureFilter,
    bounds: tuple[int, int],
    limit: int,
    *,
    newest_first: bool,
) -> list[int]:
    """Return the numbers among which those that are meant are, in order: `limit` at most."""
    first, last = bounds
    if which.failures is not None:
        given = sorted({one for one in which.failures if first <= one <= last})
        return (given[::-1] if newest_first else given)[:limit]
    of_task = {"crawl": crawl_id, "task": which.task}
    values: dict[str, Any] = {"first": first, "last": last, "limit": limit}
    if which.group is None:
        statement = NEWEST_OF_TASKS if newest_first else OLDEST_OF_TASKS
        return list(connection.execute(statement, {**values, **of_task}).scalars())
    statement = NEWEST_OF_GROUP if newest_first else OLDEST_OF_GROUP
    return list(connection.execute(statement, {**values, "group": which.group}).scalars())


def meant(
    connection: Connection, crawl_id: int, which: FailureFilter, numbers: Sequence[int]
) -> list[PairOfFailure]:
    """Return those of some numbers that are open and meant, in the order of the numbers."""
    given = {"crawl": crawl_id, "failures": list(numbers), **conditions(which)}
    return typed(connection.execute(MEANT, given), PairOfFailure)


def rows(connection: Connection, numbers: Sequence[int]) -> list[OpenFailure]:
    """Return the failures of some numbers, in their order, open or not."""
    return typed(connection.execute(ROWS, {"failures": list(numbers)}), OpenFailure)


def page(
    connection: Connection,
    crawl_id: int,
    which: FailureFilter,
    *,
    after: int = 0,
    limit: int = 1000,
    newest_first: bool = False,
) -> FailurePage:
    """Return a page of open failures, with what their attempts logged."""
    found, following = look(
        connection, crawl_id, which, after=after, limit=limit, newest_first=newest_first
    )
    read = rows(connection, [one.id for one in found])
    is_cut = following is not None and len(found) < limit
    return FailurePage(logged(connection, read), following, is_cut)


def details(connection: Connection, crawl_id: int, failure: int) -> FailureDetails | None:
    """Return a failure of the crawl with all that is known of it; None: there is none."""
    known = connection.execute(ONE, {"failure": failure, "crawl": crawl_id}).one_or_none()
    found = [] if known is None else logged(connection, rows(connection, [failure]))
    return FailureDetails(found[0], **known._asdict()) if known and found else None


def of_item(connection: Connection, item_id: int) -> dict[str, int]:
    """Return the number of the last open failure of each task of an item, by the task's name."""
    rows = connection.execute(OF_ITEM, {"item": item_id})
    return {row.name: row.id for row in rows}


def crawl_of(connection: Connection, failure: int) -> str | None:
    """Return the name of the crawl that has a failure; None: there is no such failure."""
    name: str | None = connection.execute(CRAWL, {"failure": failure}).scalar_one_or_none()
    return name


def newest(connection: Connection) -> int:
    """Return the number of the failure that was recorded last, of any crawl; 0: there is none."""
    number: int = connection.execute(NEWEST).scalar_one()
    return number
