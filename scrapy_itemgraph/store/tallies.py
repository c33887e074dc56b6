"""Tallies: what workers did, added up by the minute, by the clock of the database, and in all.

Workers share these rows, so they are written last in a transaction, and in their order.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from scrapy_itemgraph.model.tallies import ADDED
from scrapy_itemgraph.store import latencies, lost_commit_answers
from scrapy_itemgraph.store.columns import columns

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

    from scrapy_itemgraph.model.tallies import Tallies

LARGEST = 2**62  # what can still be added to; a row may hold more

_OF_MINUTES = ("done", "retried", "failed", "refused", "gone", "items", "scraped", "seconds")
_OF_TOTALS = ("done", "retried", "failed", "refused", "gone", "items", "scraped", "bytes")


def _more(table: str, names: Iterable[str]) -> str:
    """Return what adds the numbers of a row to those that a table has."""
    return ", ".join(
        f"{name} = {table}.{name} + excluded.{name}"
        if name == "seconds"
        else f"{name} = least({table}.{name}, {LARGEST}) + excluded.{name}"
        for name in names
    )


def an_object(column: str) -> str:
    """Return, in SQL, a column of JSON, as an empty object where somebody wrote something else."""
    return f"CASE WHEN json_typeof({column}) = 'object' THEN {column} ELSE '{{}}' END"


def more_statuses(before: str, told: str) -> str:
    """Return, in SQL, two counts of requests by their HTTP status as one; each is JSON."""
    return f"""(
            SELECT coalesce(json_object_agg(status, requests ORDER BY status), '{{}}')
            FROM (
                SELECT key AS status, least(sum(CAST(value AS numeric)), {LARGEST}) AS requests
                FROM (SELECT * FROM json_each_text({an_object(before)})
                    UNION ALL SELECT * FROM json_each_text({told})) AS one
                WHERE value ~ '^[0-9]{{1,19}}$' GROUP BY key) AS summed)"""  # noqa: S608 - our own text


# What was told, a row for each task.
_TOLD = """unnest(CAST(:tasks AS int[]), CAST(:done AS bigint[]), CAST(:retried AS bigint[]),
        CAST(:failed AS bigint[]), CAST(:refused AS bigint[]), CAST(:gone AS bigint[]),
        CAST(:items AS bigint[]), CAST(:scraped AS bigint[]), CAST(:bytes AS bigint[]),
        CAST(:seconds AS float8[]), CAST(:statuses AS text[]))
        AS told(task_id, done, retried, failed, refused, gone, items, scraped, bytes, seconds,
            statuses)"""

ADD_OF_TASKS = text(f"""
    INSERT INTO task_minutes AS m (crawl_id, minute, task_id, {", ".join(_OF_MINUTES)})
    SELECT :crawl, date_trunc('minute', clock_timestamp()), task_id, {", ".join(_OF_MINUTES)}
    FROM {_TOLD}
    ORDER BY task_id
    ON CONFLICT (crawl_id, minute, task_id) DO UPDATE SET {_more("m", _OF_MINUTES)}
""")  # noqa: S608 - our own text

ADD_TO_TOTALS = text(f"""
    INSERT INTO totals AS t (crawl_id, task_id, {", ".join(_OF_TOTALS)}, statuses)
    SELECT :crawl, task_id, {", ".join(_OF_TOTALS)}, CAST(statuses AS json)
    FROM {_TOLD}
    ORDER BY task_id
    ON CONFLICT (crawl_id, task_id) DO UPDATE SET {_more("t", _OF_TOTALS)},
        statuses = {more_statuses("t.statuses", "excluded.statuses")}
""")  # noqa: S608 - our own text

ADD_OF_LIMITS = text(f"""
    INSERT INTO limit_minutes AS m (limit_id, minute, requests)
    SELECT l.id, date_trunc('minute', clock_timestamp()), told.requests
    FROM unnest(CAST(:kinds AS text[]), CAST(:names AS text[]), CAST(:requests AS bigint[]))
        AS told(kind, name, requests)
    JOIN limits l ON l.kind = told.kind AND l.name = told.name
    ORDER BY l.id
    ON CONFLICT (limit_id, minute) DO UPDATE SET
        requests = least(m.requests, {LARGEST}) + excluded.requests
""")  # noqa: S608 - our own number


def add(connection: Connection, crawl_id: int, told: Tallies) -> bool:
    """Add what a worker did to the numbers of this minute and to those in all, once.

    Limits that are not known are left out.

    Return False if it was added before, or there is nothing to add.
    """
    if not told or not lost_commit_answers.take(connection, told.token):
        return False
    if told.of_tasks:
        tasks = list(told.of_tasks.values())
        given: dict[str, Any] = {**columns(tasks, **{name: name for name in ADDED})}
        given |= {"crawl": crawl_id, "tasks": list(told.of_tasks)}
        given["statuses"] = [json.dumps(one.statuses) for one in tasks]
        connection.execute(ADD_OF_TASKS, given)
        connection.execute(ADD_TO_TOTALS, given)
    if told.starts:
        connection.execute(
            ADD_OF_LIMITS,
            {
                "kinds": [kind for kind, _ in told.starts],
                "names": [name for _, name in told.starts],
                "requests": list(told.starts.values()),
            },
        )
    latencies.add(connection, crawl_id, told)
    return True
