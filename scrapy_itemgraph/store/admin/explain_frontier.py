"""Why a URL is not given to crawlers that ask a frontier, or who has it, for people who ask."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.model import counts, frontier
from scrapy_itemgraph.store.columns import typed
from scrapy_itemgraph.tools import wording

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

# A hold ends at a whole second: so it is told from a retry of a spider.
FACTS = text("""
    SELECT t.spider, s.name AS key, w.token IS NOT NULL AS is_claimed,
        CASE WHEN w.tries > 0 AND w.not_before = date_trunc('second', w.not_before)
            THEN w.not_before END AS held_until,
        coalesce(f.delay, d.default_delay) AS delay, f.last_served, f.blocked_until,
        f.crawl_limit, f.completed, f.is_deleting, d.is_active, q.holder,
        clock_timestamp() AS now
    FROM items i
    JOIN tasks t ON t.crawl_id = i.crawl_id AND t.name = :task
    JOIN work w ON w.item_id = i.id AND w.task_id = t.id
    JOIN queues q ON q.id = w.queue_id
    JOIN limits s ON s.id = q.slot_id
    JOIN frontier_queues f ON f.queue_id = w.queue_id
    CROSS JOIN frontier d
    WHERE i.id = :item AND i.in_frontier
""")


class Served(NamedTuple):
    """What decides whether crawlers get a URL that is to be fetched, and when.

    `delay`, `last_served` and `blocked_until` are whole seconds, the last two since 1970.
    """

    spider: str
    key: str
    is_claimed: bool
    held_until: datetime | None
    delay: int
    last_served: int
    blocked_until: int
    crawl_limit: int | None
    completed: int
    is_deleting: bool
    is_active: bool
    holder: int | None
    now: datetime

    @property
    def is_of_crawlers_alone(self) -> bool:
        """Whether no spider fetches it."""
        return self.spider == frontier.SPIDER

    @property
    def hold(self) -> str | None:
        """Say until when a crawler has it, if one does."""
        if self.is_claimed or self.held_until is None or self.held_until <= self.now:
            return None
        return (
            f"it was given to a crawler until {_shown(self.held_until)}, which has not said yet "
            "what became of it"
        )

    def against(self) -> Iterator[str]:
        """Say what keeps crawlers from getting it that ask now, but for a hold."""
        if self.is_claimed:
            return
        queue = f"the queue {self.key!r} of the frontier"
        second = int(self.now.timestamp())
        if not self.is_active:
            yield "crawlers get nothing: the frontier is paused (SetActive)"
        if self.is_deleting:
            yield f"{queue} is being deleted"
        if self.blocked_until >= second:
            until = _shown(_moment(self.blocked_until))
            yield f"{queue} is blocked for crawlers until {until} (BlockQueueUntil)"
        if self.crawl_limit is not None and self.completed >= self.crawl_limit:
            done = counts.many(self.completed, "completed URL")
            yield f"{queue} has {done}, and its limit is {self.crawl_limit:,} (SetCrawlLimit)"
        wait = self.last_served + self.delay + 1 - second
        if self.last_served and wait > 0:
            yield (
                f"{queue} was served {_ago(second - self.last_served)}, and crawlers get of it "
                f"again in {wording.format_period(wait)}: its delay is {self.delay:,}s (SetDelay)"
            )
        if self.holder is not None:
            yield f"worker {self.holder} has the slot {self.key!r} for itself: crawlers wait for it"


def facts(connection: Connection, item_id: int) -> Served | None:
    """Return what decides; None: the item is no URL of a frontier that is to be fetched."""
    found = typed(connection.execute(FACTS, {"item": item_id, "task": frontier.TASK}), Served)
    return found[0] if found else None


def _shown(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S %Z}"


def _moment(second: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(seconds=min(second, frontier.LAST_SECOND))


def _ago(seconds: int) -> str:
    return f"{wording.format_period(seconds)} ago" if seconds > 0 else "just now"
