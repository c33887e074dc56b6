"""What the next start of a crawl would be: by which spider, with which arguments, and of which run.

It reads a few rows, however many items there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.model import counts
from scrapy_itemgraph.store.set_aside import IN_WORK
from scrapy_itemgraph.store.sql_conditions import IS_DEAD

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection

MANY = 1000  # from which on what is outstanding is not counted

NEXT_START = text(f"""
    SELECT coalesce(c.spider, (SELECT min(t.spider) FROM tasks t WHERE t.crawl_id = c.id))
            AS spider,
        CASE WHEN json_typeof(c.given) = 'object' THEN c.given ELSE '{{}}' END AS arguments,
        c.state, r.is_finished AS is_new_run, r.number AS run,
        ({IN_WORK.text}) AS outstanding,
        EXISTS (SELECT FROM processes p
            WHERE p.crawl_id = c.id AND p.stopped_at IS NULL AND NOT {IS_DEAD}) AS is_running,
        ARRAY(SELECT t.name FROM tasks t
            WHERE t.crawl_id = c.id AND t.is_callback AND t.is_registered ORDER BY 1) AS callbacks,
        EXISTS (SELECT FROM tasks t
            WHERE t.crawl_id = c.id AND t.is_callback AND t.is_registered AND t.ttl IS NULL
                AND NOT EXISTS (SELECT FROM task_schedules s WHERE s.task_id = t.id))
            AS has_no_ttl
    FROM crawls c JOIN runs r ON r.crawl_id = c.id AND r.number = c.run
    WHERE c.id = :crawl
""")  # noqa: S608 - our own condition


class NextStart(NamedTuple):
    """How a crawl that has run is started again.

    `state` is that of a crawl in the queue; None: nobody steers it. With `is_new_run` its last run
    is over, else a start goes on with it. `outstanding` is how many pages that is about, up to a
    thousand, and `run` the number of the last run. `is_running`: a worker lives, so nothing has to
    be started. `callbacks` are the plain ones that are known, by name; with `has_no_ttl` nothing
    that is stored says how long the pages of one of them stay done.
    """

    spider: str
    arguments: Mapping[str, str]
    state: str | None
    is_new_run: bool
    run: int
    outstanding: int
    is_running: bool
    callbacks: list[str]
    has_no_ttl: bool

    @property
    def cost(self) -> str:
        """How many pages are outstanding, in words."""
        if self.outstanding >= MANY:
            return f"{MANY:,} or more pages"
        return counts.many(self.outstanding, "page")


def next_start(connection: Connection, crawl_id: int) -> NextStart | None:
    """Return how a crawl is started again; None: it has never run, or no spider is known."""
    row = connection.execute(NEXT_START, {"crawl": crawl_id, "most": MANY}).one_or_none()
    return None if row is None or row.spider is None else NextStart(**row._asdict())
