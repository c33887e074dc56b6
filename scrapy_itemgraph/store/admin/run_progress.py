"""How far a crawl's present or last run is: what is known of it, and where each piece of it stands.

Each number is of one statement, so that they add up at any moment; see `task_counts: PROGRESS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from scrapy_itemgraph.model import counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import Connection

    from scrapy_itemgraph.store.admin.run_lists import RunLine

# What was done in the last minutes, and in how many seconds; of the run under way alone.
PACES = text("""
    SELECT c.id, coalesce(sum(m.done), 0) + coalesce(sum(m.failed), 0) + coalesce(sum(m.gone), 0)
            + coalesce(sum(m.refused), 0) AS ended,
        coalesce(sum(m.scraped), 0) AS scraped, coalesce(sum(m.items), 0) AS made,
        coalesce(CAST(extract(epoch FROM clock_timestamp() - greatest(min(m.minute), r.started_at))
            AS float8), 0) AS seconds
    FROM crawls c JOIN runs r ON r.crawl_id = c.id AND r.number = c.run
    LEFT JOIN task_minutes m ON m.crawl_id = c.id
        AND m.minute >= greatest(date_trunc('minute', r.started_at),
            date_trunc('minute', clock_timestamp()) - interval '5 minutes')
    WHERE c.id = ANY (CAST(:crawls AS int[])) GROUP BY c.id, r.started_at
""")

SHORTEST = 10.0  # seconds after which a pace says something
# The part of the pages that ended, by which what is left shrinks, below which no time left is told.
LEAST_SHRINKING = 0.1

# Where work stands, each with the number of a task; they have no piece of work in common.
_OF_TASKS = {
    "done": "done",
    "waiting": "waiting",
    "running": "claimed",
    "later": "delayed",
    "failed": "failed",
    "gone": "gone",
    "refused": "refused",
    "given_up": "given_up",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where the known work of a crawl stands: tasks of items, which are pages in plain spiders.

    `known` is the sum of `done` (in this run), `earlier` (fresh before it, by earlier runs),
    `waiting`, `running`, `later` (not before a moment to come), `failed`, `gone`, `refused` and
    `given_up`; `estimated` names the numbers that are estimates. What a dependency keeps from being
    outstanding is not known yet.

    `to_do` is what this run has to do, or has done: `done`, what `failed` in it, and while it is
    not over `waiting` but for disabled tasks, `running` and the `retries` among `later`. `share` is
    the part of it that is done, 0 to 1; None where there is nothing to do. `led_to_known` counts
    the done pages whose redirect led to a known page. While a worker runs: pieces
    that ended and items that were scraped `_per_minute`, of the last five minutes; and
    `seconds_left`, None where less ends than is found.
    """

    known: int
    done: int
    earlier: int
    waiting: int
    running: int
    later: int
    failed: int
    gone: int
    refused: int
    given_up: int
    led_to_known: int
    retries: int
    to_do: int
    estimated: tuple[str, ...]
    share: float | None
    pages_per_minute: float | None
    scraped_per_minute: float | None
    seconds_left: float | None


@dataclass(frozen=True, slots=True)
class Pace:
    """What was done in so many seconds: pieces of work that ended, items scraped, items made."""

    ended: int
    scraped: int
    made: int
    seconds: float

    def per_minute(self, number: int) -> float | None:
        """Return how many that are in a minute; None after too short a time."""
        return None if self.seconds < SHORTEST else round(60 * number / self.seconds, 1)

    def seconds_for(self, left: int) -> float | None:
        """Return how long what is left takes at this pace, where new items are work as well."""
        shrinks = self.ended - self.made
        if self.seconds < SHORTEST or shrinks <= LEAST_SHRINKING * self.ended:
            return None
        return round(left * self.seconds / shrinks, 1)


NO_PACE = Pace(0, 0, 0, 0.0)


def paces(connection: Connection, running: Sequence[int]) -> dict[int, Pace]:
    """Return how fast crawls go that are running, by their numbers."""
    rows = connection.execute(PACES, {"crawls": list(running)}) if running else ()
    return {
        row.id: Pace(int(row.ended), int(row.scraped), int(row.made), row.seconds) for row in rows
    }


def of_tasks(
    counted: Iterable[Mapping[str, Any]], pace: Pace | None, run: RunLine | None
) -> Progress:
    """Add up where the work of a crawl's tasks stands; a pace is told while it is running.

    `run` is the present or last one. If it is over, the next run does what waits.
    """
    pace = pace or NO_PACE
    tasks = [one for one in counted if one["is_registered"]]
    numbers = {name: counts.total(one[of] for one in tasks) for name, of in _OF_TASKS.items()}
    stands = counts.total(one[name] for one in tasks for name in ("fresh", "due"))
    numbers["earlier"] = counts.less(stands, numbers["done"])
    numbers["known"] = counts.total(numbers.values())
    numbers["led_to_known"] = counts.total(one["led_to_known"] for one in tasks)
    open_ = counts.total(one["waiting"] for one in tasks if one["is_enabled"])
    retries = numbers["later"] if run is None else counts.total(one["retries"] for one in tasks)
    numbers["retries"] = retries
    left = counts.total([open_, numbers["running"], retries])
    failed = numbers["failed"]
    if run is not None:
        failed = counts.total(one["failed_in_run"] for one in tasks)
    is_over = run is not None and run.state == "finished"
    numbers["to_do"] = counts.total([numbers["done"], failed, *([] if is_over else [left])])
    return Progress(
        **{name: int(number) for name, number in numbers.items()},
        estimated=counts.estimated(numbers),
        share=round(min(1.0, numbers["done"] / to_do), 4) if (to_do := numbers["to_do"]) else None,
        pages_per_minute=pace.per_minute(pace.ended),
        scraped_per_minute=pace.per_minute(pace.scraped),
        seconds_left=pace.seconds_for(left),
    )
