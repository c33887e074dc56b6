"""The health of crawls: what it is judged by, read for many of them with one statement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.exceptions import NotFoundError
from scrapy_itemgraph.model.crawl_states import STATE_EVENTS
from scrapy_itemgraph.model.health import LAST_RUNS, MANY, MOST_LED, Facts, Health, RunFacts, judge
from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store.sql_conditions import OPEN_FAILURES, STANDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

_LOOKED_AT = 1000  # results that led somewhere, of a task, of which those that stand are counted
_LONGEST = 300  # characters of an error sentence
_OPEN = OPEN_FAILURES.format(first=False, last=False, condition=True)

# A machine's pause names the job that it is for, or tells of a crash loop. Each number is counted
# as far as it matters: by an index, and of each crawl by itself.
FACTS = text(f"""
    SELECT c.id,
        CASE WHEN c.state = 'paused' AND (
            SELECT e.what = 'crash loop' OR e.detail ->> 'job' IS NOT NULL FROM crawl_events e
            WHERE e.crawl_id = c.id AND e.what = ANY (CAST(:into_states AS text[]))
            ORDER BY e.id DESC LIMIT 1)
            THEN coalesce(c.state_reason, '') END AS paused_for,
        runs.numbers, runs.started_at, runs.pages, runs.failed, runs.errors,
        (SELECT count(*) FROM (
            SELECT FROM tasks t CROSS JOIN LATERAL ({_OPEN} LIMIT :many) AS open
            WHERE t.crawl_id = c.id LIMIT :many) AS counted) AS failures,
        (SELECT coalesce(last.error, 'an error') || ' in ' || last.task FROM (
            SELECT f.id, left(f.error ->> 'type', {_LONGEST}) AS error, t.name AS task
            FROM tasks t CROSS JOIN LATERAL (
                SELECT f.id, f.error FROM failures f
                WHERE f.handled_at IS NULL
                    AND (f.task_id, f.is_refusal) >= (t.id, false)
                    AND (f.task_id, f.is_refusal) <= (t.id, false)
                ORDER BY f.task_id DESC, f.is_refusal DESC, f.id DESC LIMIT 1) AS f
            WHERE t.crawl_id = c.id) AS last
            ORDER BY last.id DESC LIMIT 1) AS last_failure,
        (SELECT count(*) FROM (
            SELECT FROM tasks t CROSS JOIN LATERAL (
                SELECT FROM (
                    SELECT * FROM results r
                    WHERE r.task_id = t.id AND r.led_to IS NOT NULL LIMIT {_LOOKED_AT}) AS r
                WHERE {STANDS} LIMIT :most_led) AS led
            WHERE t.crawl_id = c.id LIMIT :most_led) AS counted) AS led_to_known
    FROM crawls c CROSS JOIN LATERAL (
        SELECT array_agg(r.number ORDER BY r.number DESC) AS numbers,
            array_agg(r.started_at ORDER BY r.number DESC) AS started_at,
            array_agg(r.pages ORDER BY r.number DESC) AS pages,
            array_agg(r.failures ORDER BY r.number DESC) AS failed,
            array_agg(left(r.error, {_LONGEST}) ORDER BY r.number DESC) AS errors
        FROM (
            SELECT * FROM runs r WHERE r.crawl_id = c.id ORDER BY r.number DESC LIMIT :runs) AS r
    ) AS runs
    WHERE c.id = ANY (CAST(:crawls AS int[]))
""")  # noqa: S608 - our own conditions and numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class CrawlHealth:
    """The health of a crawl, and why; with its last runs, the newest first."""

    health: Health
    why: str
    runs: tuple[RunFacts, ...]


def of_each(connection: Connection, crawls: Sequence[int]) -> dict[int, CrawlHealth]:
    """Return the health of some crawls, by one statement."""
    engine.hot_path(connection)
    given = {"crawls": list(crawls), "into_states": list(STATE_EVENTS), "runs": LAST_RUNS}
    rows = connection.execute(FACTS, {**given, "many": MANY, "most_led": MOST_LED + 1})
    found = {}
    for row in rows:
        columns = (row.numbers, row.started_at, row.pages, row.failed, row.errors)
        runs = tuple(
            RunFacts(number=number, started_at=at, pages=pages, failures=failed, error=error)
            for number, at, pages, failed, error in zip(
                *(one or () for one in columns), strict=True
            )
        )
        facts = Facts(
            paused_for=row.paused_for,
            runs=runs,
            failures=row.failures,
            last_failure=row.last_failure,
            led_to_known=row.led_to_known,
        )
        health, why = judge(facts)
        found[row.id] = CrawlHealth(health=health, why=why, runs=runs)
    return found


def of_crawl(connection: Connection, crawl_id: int) -> CrawlHealth:
    """Return the health of a crawl.

    Raises:
        NotFoundError: it was deleted meanwhile.

    """
    found = of_each(connection, [crawl_id])
    if crawl_id not in found:
        raise NotFoundError("the crawl was deleted meanwhile")
    return found[crawl_id]
