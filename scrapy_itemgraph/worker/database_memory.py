"""What this process has in memory of its database, should that go back to an earlier state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Collection, Mapping
    from uuid import UUID

    from scrapy_itemgraph.throttle.limiter_set import Limiters
    from scrapy_itemgraph.worker.executions.active_executions import ActiveExecutions
    from scrapy_itemgraph.worker.executions.outbox import Outbox
    from scrapy_itemgraph.worker.spider.shared_cookies import SessionSync
    from scrapy_itemgraph.worker.spider_start import SpiderStart


@dataclass(slots=True, eq=False, repr=False)
class DatabaseMemory:
    """Answers `graph.worker_recovery: WorkerRecovery` for the parts of one worker.

    Known names are not here: they are forgotten by `WorkerGraph.names_freed`. When the database
    lacks what `start()` and `seeds()` gave it, these run once more.
    `news` is set when there may be work.
    """

    active: ActiveExecutions
    outbox: Outbox
    limiters: Limiters
    sessions: SessionSync
    start: SpiderStart
    news: asyncio.Event

    def in_hand(self) -> set[UUID]:
        """Return the tokens of all claims that are under way or wait for their commit."""
        working = (one.claim for one in self.active.working)
        tokens = {claim.token for claim in working if claim is not None}
        return tokens | {claim.token for claim in self.outbox.claims}

    def limits(self) -> Collection[tuple[str, str]]:
        """Return the limits that are known by their number, by kind and name."""
        return [one.key for one in self.limiters if one.limit_id is not None]

    def renumber(self, numbers: Mapping[tuple[str, str], int]) -> None:
        """Take note of the numbers that limits have now; those left out have none."""
        self.limiters.renumber(numbers)
        self.news.set()

    def went_back(self, *, has_start: bool) -> None:
        """Take note that the database went back; `has_start`: it has what `start()` yielded."""
        self.limiters.lose()
        self.limiters.wanted.set()
        self.sessions.save_again()
        if not has_start:
            self.start.want_again()
            self.active.is_over = False
        self.news.set()
