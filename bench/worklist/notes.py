"""The worklist query of the project's first notes, as written there, beside a claim of ours.

Mended only so that it runs: `tags.tag` is the column `tag_name`; `operation_results` and
`operations_in_progress` are the tables `task_results` and `tasks_in_progress`, whose `operation` is
their column `task`; the second SELECT has `candidates` where `results` is out of its scope, with
`task_version` among its columns; `data` is jsonb, for UNION compares rows; `IN :tags` is written
`= ANY`. As written it returns all that is outstanding; it is also measured with the limit of the
route that it was made for. Beside the unique pairs that the notes ask for, `tags` has indexes by
both its columns. The query only reads, and two workers would get the same: what is claimed would
still have to be written. What that takes by itself, committed, is measured apart, as the least that
any claim takes.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import ours
import psycopg

from scrapy_itemgraph.model.work import ClaimBudget

if TYPE_CHECKING:
    from scrapy_itemgraph.graph import WorkerGraph

TABLES = """
CREATE TABLE items (
    id text PRIMARY KEY,
    data jsonb NOT NULL,
    created_by text,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE tags (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    item_id text NOT NULL,
    tag_name text NOT NULL,
    value text
);
CREATE TABLE task_results (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task text NOT NULL,
    task_version text NOT NULL,
    item_id text NOT NULL,
    metadata jsonb,
    is_successful boolean NOT NULL,
    is_invalidated boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz,
    UNIQUE (task, item_id)
);
CREATE TABLE tasks_in_progress (item_id text, task text, UNIQUE (task, item_id));
"""
FILL = """
INSERT INTO items (id, data)
SELECT 'i' || n, jsonb_build_object('url', 'http://site.example/page/' || n)
FROM generate_series(1, {count}) n;
INSERT INTO tags (item_id, tag_name) SELECT id, 'page' FROM items;
INSERT INTO task_results (task, task_version, item_id, metadata, is_successful)
SELECT 'parse', '1', 'i' || n, '{{"links": 10}}', true FROM generate_series(1, {done}) n;
CREATE INDEX ON tags (item_id);
CREATE INDEX ON tags (tag_name, item_id);
CREATE INDEX ON tasks_in_progress (item_id);
"""
QUERY = """
WITH candidates AS (
    SELECT DISTINCT ON (items.id)
        items.*,
        results.expires_at,
        results.is_invalidated,
        results.is_successful,
        results.task_version,
        results.id AS result_id
    FROM items
    INNER JOIN tags ON tags.item_id = items.id AND tags.tag_name = ANY (%(tags)s)
    LEFT JOIN task_results AS results
        ON results.item_id = items.id AND results.task = %(operation)s
    WHERE NOT EXISTS (SELECT FROM tasks_in_progress AS pr WHERE pr.item_id = items.id)
)
SELECT * FROM candidates WHERE result_id IS NULL
UNION
SELECT * FROM candidates
WHERE
    candidates.is_successful = TRUE
    AND (
        candidates.expires_at < NOW()
        OR candidates.is_invalidated = TRUE
        OR NOT (candidates.task_version = %(task_version)s)
    )
"""
LIMIT = "LIMIT %(limit)s"
MARK = """
INSERT INTO tasks_in_progress (item_id, task)
SELECT 'i' || n, 'parse' FROM generate_series(%s::int, %s::int) n
"""
CLAIMS = 20  # of ours in a round, each of which is given back untimed


def fill(where: dict, count: int, done: int) -> None:
    """Fill an empty database with the notes' tables: `count` items, the first `done` fresh."""
    with psycopg.connect(**where, autocommit=True) as connection:
        connection.execute(TABLES)
        connection.execute(FILL.format(count=count, done=done))
        connection.execute("VACUUM ANALYZE")


def query(where: dict, expected: int, *, is_limited: bool) -> float:
    """Return how many seconds the notes' query takes until its rows are in the client."""
    given = {"tags": ["page"], "operation": "parse", "task_version": "1", "limit": expected}
    statement = QUERY + LIMIT if is_limited else QUERY
    with psycopg.connect(**where, autocommit=True) as connection:
        began = time.perf_counter()
        count = connection.execute(statement, given).rowcount  # their values are not read
        seconds = time.perf_counter() - began
    if count != expected:
        raise RuntimeError(f"the notes' query found {count} of {expected} items")
    return seconds


def marks(where: dict, limit: int) -> list[float]:
    """Return how many seconds it takes, each time, to note that so many items are in progress."""
    taken = []
    with psycopg.connect(**where, autocommit=True) as connection:
        for number in range(CLAIMS + 1):
            first = 1 + number * limit
            began = time.perf_counter()
            connection.execute(MARK, (first, first + limit - 1))
            taken.append(time.perf_counter() - began)
        connection.execute("TRUNCATE tasks_in_progress")
    return taken[1:]  # the first one plans


async def claims(url: str, limit: int) -> list[float]:
    """Return how many seconds each of some claims takes, of as many items as the query's."""
    graph: WorkerGraph = await ours.open_graph(url)
    taken = []
    try:
        for _ in range(CLAIMS + 1):
            began = time.perf_counter()
            result = await graph.claims.claim(ClaimBudget(most=limit))
            taken.append(time.perf_counter() - began)
            if len(result.claims) != limit:
                raise RuntimeError(f"claimed {len(result.claims)} of {limit} items")
            await graph.claims.release(result.claims)
    finally:
        await graph.close("finished")
    return taken[1:]  # the first one connects
