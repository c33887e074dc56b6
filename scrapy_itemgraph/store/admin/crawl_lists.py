"""The crawls of a database by spider and arguments, and their deletion."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.model.health import Health
from scrapy_itemgraph.store import health
from scrapy_itemgraph.store.admin import crawl_changes
from scrapy_itemgraph.store.items import item_ids
from scrapy_itemgraph.store.registry.crawls import own_crawl
from scrapy_itemgraph.store.sql_conditions import IS_DEAD

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta

    from sqlalchemy import Connection

# Those of the queue come first, then those that nobody steers, then the ended, the newest first.
# BETWEEN leaves the order by state to the index by state: of `= 'active'` a planner whose
# statistics are of before reads all crawls by their numbers.
_OF_STATE = """(
            SELECT id FROM crawls WHERE state {is_} ORDER BY state DESC, id DESC
            LIMIT CAST(:limit AS bigint))"""
_CHOSEN = " UNION ALL ".join(
    _OF_STATE.format(is_=is_)
    for is_ in (
        "BETWEEN 'active' AND 'active'",
        "BETWEEN 'paused' AND 'paused'",
        "IS NULL",
        "BETWEEN 'aborted' AND 'aborted'",
        "BETWEEN 'finished' AND 'finished'",
    )
)

# Of a crawl that nobody has started since there are names of spiders, its tasks tell.
LIST = text(f"""
    SELECT * FROM (
        SELECT c.id, c.name AS crawl,
            coalesce(c.spider, (SELECT min(t.spider) FROM tasks t WHERE t.crawl_id = c.id))
                AS spider,
            CASE WHEN json_typeof(c.given) = 'object' THEN c.given END AS arguments,
            c.state, c.run, c.created_at, r.started_at AS run_started_at,
            CASE WHEN r.is_finished THEN r.ended_at END AS run_finished_at,
            greatest(c.created_at, r.started_at, r.ended_at, seen.at) AS used_at,
            (SELECT count(*) FROM processes p
                WHERE p.crawl_id = c.id AND p.stopped_at IS NULL AND NOT {IS_DEAD}) AS workers
        FROM ({_CHOSEN} LIMIT CAST(:limit AS bigint)) AS chosen JOIN crawls c ON c.id = chosen.id
        LEFT JOIN runs r ON r.crawl_id = c.id AND r.number = c.run
        LEFT JOIN (
            SELECT p.crawl_id, max(p.seen_at) AS at FROM processes p GROUP BY p.crawl_id
        ) AS seen ON seen.crawl_id = c.id) AS listed
    WHERE (CAST(:spider AS text) IS NULL OR spider = :spider)
        AND (CAST(:age AS interval) IS NULL OR used_at < clock_timestamp() - CAST(:age AS interval))
    ORDER BY spider, crawl
""")  # noqa: S608 - our own condition

CHOSEN = text(f"""
    SELECT c.id, c.name FROM ({_CHOSEN} LIMIT CAST(:limit AS bigint)) AS chosen
    JOIN crawls c ON c.id = chosen.id
""")  # noqa: S608 - our own condition
NAMES = text("SELECT name FROM crawls")

_LOOKED_AT = 1000  # crawls, for their health
_RANKS = list(Health)

DELETE = text("DELETE FROM crawls WHERE id = :crawl")


@dataclass(frozen=True, slots=True, kw_only=True)
class CrawlLine:
    """A crawl, the spider that started it last, and with which arguments (None: not known).

    `health` is red, amber or green, and `why` says why. `state` is None where nobody steers it.
    `run` is the number of its present or last run; `used_at` is when it began, or ended, or a
    worker of it was seen last.
    """

    crawl: str
    health: Health
    why: str
    spider: str | None
    arguments: Mapping[str, str] | None
    state: str | None
    run: int
    created_at: datetime
    run_started_at: datetime | None
    run_finished_at: datetime | None
    used_at: datetime
    workers: int


def listed(
    connection: Connection,
    *,
    spider: str | None = None,
    older_than: timedelta | None = None,
    limit: int | None = None,
) -> list[CrawlLine]:
    """Return crawls by spider and name: all, those of a spider, those not used for a period.

    With `limit` so many at most are looked at: active ones first, then paused ones, those that
    nobody steers, aborted and finished ones, and of these the newest.
    """
    given = {"spider": spider, "age": older_than, "limit": limit}
    rows = connection.execute(LIST, given).mappings().all()
    found = health.of_each(connection, [row["id"] for row in rows])
    lines = []
    for row in (one for one in rows if one["id"] in found):  # not deleted just now
        of = found[row["id"]]
        columns = {name: value for name, value in row.items() if name != "id"}
        lines.append(CrawlLine(**columns, health=of.health, why=of.why))
    return lines


def in_trouble_first(connection: Connection, *, after: str, limit: int) -> list[str]:
    """Return names of crawls behind one: broken ones, those that need a look, then the others.

    A thousand are looked at, the active ones first. Who was `after` and is gone is taken for one
    that is well.
    """
    rows = connection.execute(CHOSEN, {"limit": _LOOKED_AT}).all()
    found = health.of_each(connection, [row.id for row in rows])
    ranks = {row.name: _RANKS.index(found[row.id].health) for row in rows if row.id in found}

    def place(name: str) -> tuple[int, str]:
        return ranks.get(name, _RANKS.index(Health.GREEN)), name

    names = sorted(connection.execute(NAMES).scalars(), key=place)
    begin = bisect_right(names, place(after), key=place) if after else 0
    return names[begin : begin + limit]


def delete_some(connection: Connection, crawl_id: int) -> int:
    """Delete some items of a crawl with all that they have; return how many. 0: it is gone.

    Raises:
        OperationError: while a worker of the crawl lives.

    """
    own_crawl(connection, crawl_id)
    crawl_changes.refuse_workers(connection, crawl_id)
    items = item_ids(connection, crawl_id, after=0, limit=crawl_changes.RESTART_STEP)
    if items:
        crawl_changes.delete_items(connection, items)
        return len(items)
    crawl_changes.restart(connection, crawl_id)
    connection.execute(DELETE, {"crawl": crawl_id})
    return 0
