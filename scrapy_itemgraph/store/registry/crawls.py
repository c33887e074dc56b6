"""Crawls by name, and who may change what their tasks mean."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from scrapy_itemgraph.model import input_checks
from scrapy_itemgraph.model.input_checks import CrawlNameError
from scrapy_itemgraph.store.set_aside import HAS_STASH
from scrapy_itemgraph.store.sql_conditions import (
    HAS_DEPTH_WORK,
    IS_READY_ALONE,
    IS_READY_BESIDE_OTHERS,
)

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection, CursorResult


# A commit shares the crawl's lock; who changes what tasks mean has it alone, so that no commit
# works by the old meaning and ends after the sweep has passed its items.
SHARE_CRAWL = text("""
    SELECT pg_advisory_xact_lock_shared(CAST('crawls'::regclass::oid AS int), :crawl),
        c.names_freed, c.run, c.dripfeed, c.tracks_depth, c.frontier, clock_timestamp() AS now
    FROM (SELECT) AS one LEFT JOIN crawls c ON c.id = :crawl
""")

OWN_CRAWL = text("SELECT pg_advisory_xact_lock(CAST('crawls'::regclass::oid AS int), :crawl)")

OWN_ALL_CRAWLS = text("""
    SELECT pg_advisory_xact_lock(CAST('crawls'::regclass::oid AS int), id)
    FROM (SELECT id FROM crawls ORDER BY id) AS ordered
""")

MAKE_CRAWL = text("""
    INSERT INTO crawls (name) VALUES (:name) ON CONFLICT (name) DO NOTHING
""")

FIND_CRAWL = text("SELECT id FROM crawls WHERE name = :name")

# Each row of `work` is of one of four kinds, and each of these has an index.
HAS_WORK = text(f"""
    SELECT EXISTS (
            SELECT FROM queues q CROSS JOIN LATERAL (
                SELECT FROM work w
                WHERE w.queue_id = q.id AND {IS_READY_BESIDE_OTHERS} LIMIT 1) AS first
            WHERE q.crawl_id = :crawl)
        OR EXISTS (SELECT FROM work w WHERE w.crawl_id = :crawl AND {IS_READY_ALONE})
        OR EXISTS (SELECT FROM work w WHERE w.crawl_id = :crawl AND w.not_before IS NOT NULL)
        OR EXISTS (
            SELECT FROM processes p JOIN work w ON w.worker_id = p.id AND w.token IS NOT NULL
            WHERE p.crawl_id = :crawl AND p.stopped_at IS NULL)
        OR ({HAS_STASH})
        OR {HAS_DEPTH_WORK}
""")  # noqa: S608 - our own conditions

CRAWLS = text("SELECT id FROM crawls ORDER BY id")


class SharedCrawl:
    """A crawl whose tasks mean the same until the transaction ends.

    What the answer says is read when it is asked for, so that nobody waits for it alone.
    """

    def __init__(self, crawl_id: int, answer: CursorResult[*tuple[Any, ...]]) -> None:
        self.id = crawl_id
        self._answer = answer

    @cached_property
    def _row(self) -> Any:
        return self._answer.one()

    @property
    def now(self) -> datetime:
        """The server's time when it was shared."""
        now: datetime = self._row.now
        return now

    @property
    def names_freed(self) -> int:
        """How many commits have freed names."""
        return self._row.names_freed or 0

    @property
    def run(self) -> int:
        """The number of its run, from 1; 0 before the first."""
        return self._row.run or 0

    @property
    def dripfeed(self) -> int | None:
        """How many pages of its stash are kept in work; None: nobody said so."""
        pages: int | None = self._row.dripfeed
        return pages

    @property
    def tracks_depth(self) -> bool:
        """Whether its pages have a least depth."""
        return bool(self._row.tracks_depth)

    @property
    def has_frontier(self) -> bool:
        """Whether it has a frontier, or is about to: then its URLs are marked as they are made."""
        return self._row.frontier is not None


def share_crawl(connection: Connection, crawl_id: int) -> SharedCrawl:
    """Keep what the crawl's tasks mean as it is until the transaction ends."""
    return SharedCrawl(crawl_id, connection.execute(SHARE_CRAWL, {"crawl": crawl_id}))


def own_crawl(connection: Connection, crawl_id: int) -> None:
    """Wait for the crawl's commits to end, and keep new ones out until the transaction ends."""
    connection.execute(OWN_CRAWL, {"crawl": crawl_id})


def find_crawl(connection: Connection, name: str) -> int | None:
    """Return a crawl's number."""
    row = connection.execute(FIND_CRAWL, {"name": name}).first()
    return None if row is None else int(row.id)


def make_crawl(connection: Connection, name: str) -> int:
    """Return the number of a crawl, which is made where there is none.

    Raises:
        InvalidIdError: it cannot be a new crawl's name.

    """
    try:
        input_checks.check_crawl(name)
    except CrawlNameError:
        if find_crawl(connection, name) is None:  # one of before there was a limit goes on
            raise
    connection.execute(MAKE_CRAWL, {"name": name})
    crawl_id: int = connection.execute(FIND_CRAWL, {"name": name}).scalar_one()
    return crawl_id
