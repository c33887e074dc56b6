"""Open failures in groups of those that are alike, the latest first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.model import counts
from scrapy_itemgraph.store import failures
from scrapy_itemgraph.store.admin import counting
from scrapy_itemgraph.store.admin.counting import Counted, Groups

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from sqlalchemy import Connection

MOST_LOOKED_AT = 5000  # groups of a database, of which those of a crawl are picked

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
        SELECT h.fingerprint, first.task_id, first.is_refusal,
            first.occurred_at AS first_at, last.id AS last_id, last.occurred_at AS last_at
        FROM (SELECT * FROM heads LIMIT {MOST_LOOKED_AT}) AS h
        CROSS JOIN LATERAL (
            SELECT f.* FROM failures f
            WHERE f.handled_at IS NULL AND (f.fingerprint, f.id) >= (h.fingerprint, 0)
            ORDER BY f.fingerprint, f.id LIMIT 1) AS first
        CROSS JOIN LATERAL (
            SELECT f.* FROM failures f
            WHERE f.handled_at IS NULL
                AND (f.fingerprint, f.id) <= (h.fingerprint, {failures.MAX_ID})
            ORDER BY f.fingerprint DESC, f.id DESC LIMIT 1) AS last
    ) t"""  # noqa: S608 - our own number

GROUPS = Groups(
    columns="""t.fingerprint, k.name AS task, t.is_refusal,
        t.first_at, t.last_id, t.last_at""",
    source=f"{_HEADS} JOIN tasks k ON k.id = t.task_id",
    where="k.crawl_id = :crawl",
    key="fingerprint",
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

EXAMPLES = text(f"""
    SELECT f.id, f.item_id, f.task_id, t.name AS task, i.name AS item, {failures.PAGE},
        f.is_refusal, f.error, f.occurred_at, CAST('[]' AS json) AS log
    FROM unnest(CAST(:failures AS bigint[])) AS wanted(id)
    JOIN failures f ON f.id = wanted.id
    JOIN tasks t ON t.id = f.task_id
    JOIN items i ON i.id = f.item_id
""")  # noqa: S608 - our own columns


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroup:
    """Open failures of a task that are alike: how many, since when, and the last one of them.

    `count` is an estimate where `is_estimated`.
    """

    group: UUID
    task: str
    is_refusal: bool
    count: int
    is_estimated: bool
    first_at: datetime
    last_at: datetime
    example: failures.OpenFailure


def groups(connection: Connection, crawl_id: int, *, limit: int) -> list[FailureGroup]:
    """Return groups of open failures, those with the latest failure first."""
    rows = counting.count(connection, GROUPS, crawl=crawl_id)[:limit]
    numbers = [row["last_id"] for row in rows]
    found = connection.execute(EXAMPLES, {"failures": numbers})
    examples = {one.id: one for one in map(failures.OpenFailure._make, found)}
    examples = {one.id: one for one in failures.logged(connection, list(examples.values()))}
    return [
        FailureGroup(
            group=row["fingerprint"],
            task=row["task"],
            is_refusal=row["is_refusal"],
            count=int(row["count"]),
            is_estimated=bool(counts.estimated({"count": row["count"]})),
            first_at=row["first_at"],
            last_at=row["last_at"],
            example=examples[row["last_id"]],
        )
        for row in rows
        if row["last_id"] in examples
    ]
