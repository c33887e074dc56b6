"""Open failures in groups of those that are alike, the latest first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from scrapy_itemgraph.model import counts
from scrapy_itemgraph.model.failure_filters import EVERY, FailureFilter
from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store import failures, group_tallies, open_failures
from scrapy_itemgraph.store.admin import counting
from scrapy_itemgraph.store.admin.counting import Counted, Groups

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from datetime import datetime
    from uuid import UUID

    from sqlalchemy import Connection

    from scrapy_itemgraph.store.group_tallies import KnownGroup

MOST_LOOKED_AT = 5000  # groups of a database, of which those of a crawl are picked
MOST_TIMES = 500  # failures of a group of which it is told when they were

# The fingerprints of open failures, each found from the one before by the index of them. Compared
# as rows: with an equal one the planner might look for the first by going through all numbers.
_HEADS = f"""(
        WITH RECURSIVE heads AS (
            (SELECT f.fingerprint FROM failures f
                WHERE f.handled_at IS NULL ORDER BY f.fingerprint, f.id LIMIT 1)
            UNION ALL
            SELECT (
                SELECT f.fingerprint FROM failures f
                WHERE f.handled_at IS NULL AND f.fingerprint > h.fingerprint
                ORDER BY f.fingerprint, f.id LIMIT 1)
            FROM heads h WHERE h.fingerprint IS NOT NULL)
        SELECT h.fingerprint, first.task_id, first.is_refusal, first.error->>'type' AS type,
            first.occurred_at AS first_at, last.id AS last_id, last.occurred_at AS last_at
        FROM (SELECT * FROM heads LIMIT {MOST_LOOKED_AT}) AS h
        CROSS JOIN LATERAL (
            SELECT f.* FROM failures f
            WHERE f.handled_at IS NULL AND (f.fingerprint, f.id) >= (h.fingerprint, 0)
            ORDER BY f.fingerprint, f.id LIMIT 1) AS first
        CROSS JOIN LATERAL (
            SELECT f.* FROM failures f
            WHERE f.handled_at IS NULL
                AND (f.fingerprint, f.id) <= (h.fingerprint, {open_failures.MAX_ID})
            ORDER BY f.fingerprint DESC, f.id DESC LIMIT 1) AS last
    ) t"""  # noqa: S608 - our own number

GROUPS = Groups(
    columns="""t.fingerprint, k.name AS task, t.is_refusal, t.type,
        t.first_at, t.last_id, t.last_at""",
    source=f"{_HEADS} JOIN tasks k ON k.id = t.task_id",
    where="k.crawl_id = :crawl",
    key="fingerprint",
    key_type="uuid",
    order="t.last_id DESC",
    counted={
        "count": Counted(
            table="failures",
            alias="f",
            join="f.fingerprint = t.fingerprint",
            rows="""SELECT f.* FROM failures f
                WHERE f.handled_at IS NULL AND f.fingerprint = t.fingerprint""",
            sampled="f.handled_at IS NULL",
        )
    },
)

# When the newest open failures of some groups were, the latest first, in seconds since 1970.
TIMES = text(f"""
    SELECT g.fingerprint, ARRAY(
        SELECT CAST(floor(extract(epoch FROM f.occurred_at)) AS bigint) FROM (
            SELECT f.occurred_at FROM failures f
            WHERE f.handled_at IS NULL
                AND (f.fingerprint, f.id) >= (g.fingerprint, 0)
                AND (f.fingerprint, f.id) <= (g.fingerprint, {open_failures.MAX_ID})
            ORDER BY f.fingerprint DESC, f.id DESC LIMIT :most) AS f) AS seconds
    FROM unnest(CAST(:groups AS uuid[])) AS g(fingerprint)
""")  # noqa: S608 - our own number

ORDERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "last": lambda row: -row["last_id"],
    "first": lambda row: (row["first_at"], -row["last_id"]),
    "count": lambda row: (-int(row["count"]), -row["last_id"]),
    "task": lambda row: (row["task"], -row["last_id"]),
    "type": lambda row: (row["type"] or "", -row["last_id"]),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroup:
    """Open failures of a task that are alike: how many, since when, and the last one of them.

    `count` is an estimate where `is_estimated`. `first_seen`, `times` and `runs` count handled
    failures, too: `runs` has the last ten runs with failures of the group, the oldest first.
    `number` is the group's in its crawl, for good; None: no worker has told of it.
    """

    group: UUID
    number: int | None
    task: str
    is_refusal: bool
    count: int
    is_estimated: bool
    first_at: datetime
    last_at: datetime
    first_seen: datetime
    times: int
    runs: list[group_tallies.TimesInRun]
    example: failures.OpenFailure


def groups(
    connection: Connection,
    crawl_id: int,
    which: FailureFilter = EVERY,
    *,
    sort: str = "last",
    limit: int,
) -> list[FailureGroup]:
    """Return groups of open failures in one of the `ORDERS`: by default the latest failure first.

    A text is looked for in the group's example, and a group with a failure since a moment has it.
    """
    rows = [
        row
        for row in counting.count(connection, GROUPS, crawl=crawl_id)
        if which.group in {None, row["fingerprint"]}
        and which.task in {None, row["task"]}
        and which.type in {None, row["type"]}
    ]
    rows = sorted(_meant(connection, crawl_id, which, rows), key=ORDERS[sort])[:limit]
    found = open_failures.rows(connection, [row["last_id"] for row in rows])
    examples = {one.id: one for one in failures.logged(connection, found)}
    told = group_tallies.known(connection, crawl_id, [row["fingerprint"] for row in rows])
    return [
        _group(row, examples[row["last_id"]], told.get(row["fingerprint"]))
        for row in rows
        if row["last_id"] in examples
    ]


def _group(
    row: dict[str, Any], example: failures.OpenFailure, told: KnownGroup | None
) -> FailureGroup:
    count, first_at = int(row["count"]), row["first_at"]
    return FailureGroup(
        group=row["fingerprint"],
        number=told.number if told else None,
        task=row["task"],
        is_refusal=row["is_refusal"],
        count=count,
        is_estimated=bool(counts.estimated({"count": row["count"]})),
        first_at=first_at,
        last_at=row["last_at"],
        first_seen=min(told.first_seen, first_at) if told else first_at,
        times=max(told.times, count) if told else count,
        runs=told.runs if told else [],
        example=example,
    )


def times(connection: Connection, groups: Collection[UUID]) -> dict[UUID, list[int]]:
    """Return when open failures of groups were: seconds since 1970, the latest first.

    Of each group the newest `MOST_TIMES` are told.
    """
    engine.hot_path(connection)
    given = {"groups": [str(one) for one in groups], "most": MOST_TIMES}
    return {row.fingerprint: row.seconds for row in connection.execute(TIMES, given)}


def _meant(
    connection: Connection, crawl_id: int, which: FailureFilter, rows: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the groups whose last failure is meant, as far as a text or a time says so."""
    if not which.is_search:
        return rows
    numbers = [row["last_id"] for row in rows]
    found = open_failures.meant(connection, crawl_id, which, numbers)
    kept = {one.id for one in found}
    return [row for row in rows if row["last_id"] in kept]
