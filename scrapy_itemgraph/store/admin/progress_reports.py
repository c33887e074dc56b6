"""How far long work of any process is; reads that lock and change nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from scrapy_itemgraph.model import counts
from scrapy_itemgraph.postgres.engine import APPLICATION
from scrapy_itemgraph.store.admin import counting
from scrapy_itemgraph.store.admin.counting import Counted, Groups

if TYPE_CHECKING:
    from sqlalchemy import Connection

_UNDER_WAY = re.compile(rf"{APPLICATION}: (\w+) (\d+)(?:/(\d+))?")

_OF_SWEEP = ("task", "swept", "left", "ruleset", "held", "freed", "left_run")
_IS_LEFT = "g.crawl_id = t.crawl_id AND g.tag_name = ANY (t.tags) AND g.item_id > t.after_item_id"

# Open sweeps, and the items that each has not reached; one with several of the tags counts once.
SWEEPS = Groups(
    columns="""(SELECT k.name FROM tasks k WHERE k.id = t.task_id) AS task,
        t.tags, t.opened_at, t.swept, t.held, t.freed,
        (SELECT r.number FROM rulesets r WHERE r.id = t.ruleset_id) AS ruleset, t.left_run""",
    source="sweeps t",
    where="t.crawl_id = :crawl",
    key_type="bigint",
    order="t.id",
    counted={
        "left": Counted(
            table="tags",
            alias="g",
            join=_IS_LEFT,
            rows=f"SELECT g.* FROM tags g WHERE {_IS_LEFT}",  # noqa: S608 - our own text
            sampled="true",
            condition="""NOT EXISTS (
                SELECT FROM tags o
                WHERE o.item_id = g.item_id AND o.tag_name = ANY (t.tags)
                    AND o.tag_name < g.tag_name)""",
        )
    },
)

# Long work of other processes: they say in their transactions' names how far it is.
UNDER_WAY = text("""
    SELECT pid, application_name, xact_start FROM pg_stat_activity
    WHERE datname = current_database() AND application_name LIKE :pattern AND xact_start IS NOT NULL
    ORDER BY pid
""")

WAITING = text("""
    SELECT count(*) FROM (
        SELECT FROM queues q JOIN work w ON w.queue_id = q.id
        WHERE q.crawl_id = :crawl AND w.token IS NULL
        LIMIT 100000) AS waiting
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """A change of a task, or of tags, that is being brought to the items; how far that is.

    What is `left` is an estimate where it is above 100,000. Of rules that are applied to what
    waits, with the number of their `ruleset`, it is not known; they have set aside `held` pages,
    and taken back `freed`. Nor is it known of what a run left that its spider closed (`left_run`),
    of which `held` pages are held.
    """

    task: str | None
    tags: tuple[str, ...]
    swept: int
    left: int
    ruleset: int | None = None
    held: int = 0
    freed: int = 0
    left_run: int | None = None

    @property
    def total(self) -> int | None:
        """How many items it goes to; None: that is not known."""
        if self.ruleset is not None or self.left_run is not None:
            return None
        return counts.total([self.swept, self.left])

    @property
    def change(self) -> str:
        """What changed."""
        if self.left_run is not None:
            return f"the end of run {self.left_run}"
        if self.ruleset is not None:
            return f"ruleset {self.ruleset}"
        tags = ", ".join(map(repr, self.tags))
        return f"a change of the task {self.task!r}" if self.task else f"a change of the tag {tags}"

    def __str__(self) -> str:
        if self.left_run is not None:
            return (
                f"what run {self.left_run} left, which its spider closed, is being held: "
                f"{self.held:,} pages so far"
            )
        if self.total is None:
            return (
                f"{self.change} is being applied: of {self.swept:,} pages {self.held:,} were set "
                f"aside, and {self.freed:,} taken back"
            )
        return f"{self.change} has reached {self.swept:,} of {counts.shown(self.total)} items"


def open_sweeps(connection: Connection, crawl_id: int) -> list[dict[str, Any]]:
    """Return the crawl's open sweeps in their order, with the numbers of items done and left.

    `estimated` names those that are estimates.
    """
    rows = counting.count(connection, SWEEPS, crawl=crawl_id)
    return [{**row, "estimated": counts.estimated(row)} for row in rows]


def sweeps(connection: Connection, crawl_id: int) -> list[Sweep]:
    """Return the crawl's open sweeps in their order, and how far they are."""
    return [
        Sweep(
            **{name: one[name] for name in _OF_SWEEP},
            tags=tuple(one["tags"]),
        )
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


def waiting(connection: Connection, crawl_id: int) -> int:
    """Count a crawl's work that nobody has claimed, up to 100,000."""
    count: int = connection.execute(WAITING, {"crawl": crawl_id}).scalar_one()
    return count
