"""How far long work of any process is; reads that lock and change nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from scrapy_itemgraph.postgres.engine import APPLICATION

if TYPE_CHECKING:
    from sqlalchemy import Connection

MOST = 1_000_000
_UNDER_WAY = re.compile(rf"{APPLICATION}: (\w+) (\d+)(?:/(\d+))?")

# What is left of a sweep is counted up to a number.
SWEEPS = text("""
    SELECT s.id, t.name AS task, s.tags, s.opened_at, s.swept, (
        SELECT count(*) FROM (
            SELECT DISTINCT g.item_id FROM tags g
            WHERE g.crawl_id = s.crawl_id AND g.tag_name = ANY (s.tags)
                AND g.item_id > s.after_item_id
            LIMIT :most) AS rest) AS left
    FROM sweeps s
    LEFT JOIN tasks t ON t.id = s.task_id WHERE s.crawl_id = :crawl ORDER BY s.id
""")
# Long work of other processes: they say in their transactions' names how far it is.
UNDER_WAY = text("""
    SELECT pid, application_name, xact_start FROM pg_stat_activity
    WHERE datname = current_database() AND application_name LIKE :pattern AND xact_start IS NOT NULL
    ORDER BY pid
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """A change of a task, or of tags, that is being brought to the items; how far that is.

    What is `left` is counted up to a million.
    """

    task: str | None
    tags: tuple[str, ...]
    swept: int
    left: int

    @property
    def total(self) -> int:
        """How many items it goes to."""
        return self.swept + self.left

    @property
    def change(self) -> str:
        """What changed."""
        tags = ", ".join(map(repr, self.tags))
        return f"a change of the task {self.task!r}" if self.task else f"a change of the tag {tags}"

    def __str__(self) -> str:
        more = "more than " if self.left >= MOST else ""
        return f"{self.change} has reached {self.swept:,} of {more}{self.total:,} items"


def open_sweeps(connection: Connection, crawl_id: int) -> list[dict[str, Any]]:
    """Return the crawl's open sweeps in their order, with the numbers of items done and left."""
    rows = connection.execute(SWEEPS, {"crawl": crawl_id, "most": MOST})
    return [row._asdict() for row in rows]


def sweeps(connection: Connection, crawl_id: int) -> list[Sweep]:
    """Return the crawl's open sweeps in their order, and how far they are."""
    return [
        Sweep(task=one["task"], tags=tuple(one["tags"]), swept=one["swept"], left=one["left"])
        for one in open_sweeps(connection, crawl_id)
    ]


def under_way(connection: Connection) -> list[dict[str, Any]]:
    """Return the long work of other processes on this database: what it is, and how far."""
    found = []
    for row in connection.execute(UNDER_WAY, {"pattern": f"{APPLICATION}: %"}):
        if match := _UNDER_WAY.fullmatch(row.application_name):
            what, done, total = match.groups()
            numbers = {"done": int(done), "total": None if total is None else int(total)}
            found.append({"what": what, **numbers, "pid": row.pid, "since": row.xact_start})
    return found
