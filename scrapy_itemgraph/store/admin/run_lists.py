"""The runs of a crawl, as people see them: how each stands or ended, and what it did."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.model.run_standings import left_out, standing
from scrapy_itemgraph.store.columns import typed
from scrapy_itemgraph.store.pruning import MOST_RUNS
from scrapy_itemgraph.store.sql_conditions import IS_DEAD

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Connection

# A run without living workers that nobody has ended, ended when one of its was seen last, be it
# noted by now that they are dead or not.
_RUN = f"""
        r.number,
        CASE WHEN r.is_finished THEN 'finished' WHEN alive.workers > 0 THEN 'running'
            ELSE 'stopped' END AS state,
        r.started_at,
        CASE WHEN r.is_finished OR alive.workers = 0 THEN coalesce(r.ended_at, alive.seen_at, (
            SELECT max(p.seen_at) FROM processes p
            WHERE p.crawl_id = c.id AND p.started_at >= r.started_at)) END AS ended_at,
        CASE WHEN r.is_finished OR alive.workers = 0 THEN coalesce(r.reason, 'died') END AS reason,
        r.error, r.spider, r.worker_id AS worker, r.job, alive.workers,
        r.pages, r.items, r.failures, r.retried, r.refused, r.gone, r.statuses, r.bytes,
        r.long_links, r.url_limit,
        EXISTS (SELECT FROM killed k
            WHERE k.crawl_id = c.id AND k.started_at >= r.started_at
                AND (r.ended_at IS NULL OR k.started_at <= r.ended_at)) AS at_least
    FROM crawls c {{runs}}
    CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE NOT {IS_DEAD}) AS workers, max(p.seen_at) AS seen_at
        FROM processes p
        WHERE p.crawl_id = c.id AND p.stopped_at IS NULL AND r.number = c.run) AS alive
"""  # noqa: S608 - our own condition

# Workers that were killed took their last numbers with them. There is no index: one look for all.
_KILLED = f"""
    WITH killed AS MATERIALIZED (
        SELECT p.crawl_id, p.started_at FROM processes p
        WHERE p.crawl_id = {{crawls}}
            AND (p.reason IN ('died', 'stalled') OR (p.stopped_at IS NULL AND {IS_DEAD})))
"""  # noqa: S608 - our own condition

_OF_CRAWL = _RUN.format(runs="JOIN runs r ON r.crawl_id = c.id")
RUNS = text(f"""
    {_KILLED.format(crawls=":crawl")}
    SELECT {_OF_CRAWL}
    WHERE c.id = :crawl
    ORDER BY r.number DESC LIMIT :limit
""")

_LAST_OF_CRAWL = _RUN.format(
    runs="""CROSS JOIN LATERAL (
        SELECT r.* FROM runs r WHERE r.crawl_id = c.id ORDER BY r.number DESC LIMIT 1) AS r"""
)
LAST = text(f"""
    {_KILLED.format(crawls="ANY (CAST(:crawls AS int[]))")}
    SELECT c.id, {_LAST_OF_CRAWL}
    WHERE c.id = ANY (CAST(:crawls AS int[]))
""")


class RunLine(NamedTuple):
    """A run: when it began and ended, why it ended, and what it did.

    `state` is "running" while a worker lives, "finished" when all work was done, else "stopped": a
    later start goes on with it. `reason` is "finished", or why its last worker ended; `error` is
    the sentence of the last of its workers that ended by an error. `spider`, `worker` and `job` are
    those of the worker that began it; `workers` counts those that run now. `pages` are executions
    that ended well, `items` scraped items, `failures` executions that failed; `retried`, `refused`
    and `gone` count executions as well. `statuses` counts requests by their HTTP status, "none"
    those that were not answered; `bytes` are those of the answers' bodies as they were sent.
    `long_links` counts links that were left out because they are longer than URLLENGTH_LIMIT, which
    `url_limit` was then; None where none was. Where a worker was killed, its last numbers are lost:
    the run has `at_least` so many.
    """

    number: int
    state: str
    started_at: datetime
    ended_at: datetime | None
    reason: str | None
    error: str | None
    spider: str | None
    worker: int | None
    job: str | None
    workers: int
    pages: int
    items: int
    failures: int
    retried: int
    refused: int
    gone: int
    statuses: dict[str, int]
    bytes: int
    long_links: int
    url_limit: int | None
    at_least: bool

    @property
    def left_out(self) -> str | None:
        """How many links were too long, as people are told it; None where none was."""
        return left_out(self.long_links, self.url_limit)

    def __str__(self) -> str:
        how = standing(self.state, self.started_at, self.ended_at, self.reason)
        return f"run {self.number} {how}"


def last(connection: Connection, crawl_id: int) -> RunLine | None:
    """Return a crawl's present or last run; None where there was none."""
    return last_of_each(connection, [crawl_id]).get(crawl_id)


def last_of_each(connection: Connection, crawls: Sequence[int]) -> dict[int, RunLine]:
    """Return the present or last run of some crawls, of those that had one."""
    rows = connection.execute(LAST, {"crawls": list(crawls)})
    return {crawl_id: RunLine(*columns) for crawl_id, *columns in rows}


def runs(connection: Connection, crawl_id: int, *, limit: int = MOST_RUNS) -> list[RunLine]:
    """Return a crawl's runs, the newest first, up to `limit`."""
    return typed(connection.execute(RUNS, {"crawl": crawl_id, "limit": limit}), RunLine)
