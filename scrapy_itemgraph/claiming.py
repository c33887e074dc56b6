"""Claiming: takes work from the graph as it is needed, and knows the end of the crawl."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from typing import TYPE_CHECKING

from scrapy_itemgraph import checks, seeds, translation
from scrapy_itemgraph.context import Item
from scrapy_itemgraph.crawl import either
from scrapy_itemgraph.exceptions import ItemGraphError
from scrapy_itemgraph.executions import LegState
from scrapy_itemgraph.operations import SetTTL
from scrapy_itemgraph.types import Hand

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request

    from scrapy_itemgraph.crawl import Crawl
    from scrapy_itemgraph.executions import Leg
    from scrapy_itemgraph.types import Claim

logger = logging.getLogger(__name__)

# So long at least nobody looks again for what may start later, in seconds.
_SOON = 0.005
# So much work at most is in hand beside the usual while blocked slots hold it up.
_MOST_HELD_UP = 500
_POLL = {"close": 1.0, "wait": 5.0}


class Claiming:
    """Keeps the scheduler's buffer of claimed work from running dry."""

    def __init__(
        self, crawl: Crawl, unhanded: Callable[[], int], push: Callable[[Request, Leg], None]
    ) -> None:
        self._crawl = crawl
        self._unhanded = unhanded
        self._push = push
        self._is_dry = False
        self._again_in = math.inf
        self._wake = asyncio.Event()
        settings = crawl.crawler.settings
        self._limit = settings.getint("CONCURRENT_REQUESTS") + crawl.settings.claim_batch

    def wake(self) -> None:
        """Look again, if there is something to claim, or the end is near."""
        if self._crawl.is_quiet or self._room() > 0:
            self._wake.set()

    def has_news(self) -> None:
        """Look again, for there may be work where there was none."""
        self._is_dry = False
        self.wake()

    async def run(self) -> None:
        """Sow the seeds, then claim until told to stop."""
        await seeds.sow(self._crawl)
        while True:
            self._wake.clear()
            if await self._claim():
                continue
            timeout = await self._look_for_end()
            await self._pause(min(timeout, max(_SOON, self._again_in)))

    # Claims

    def _room(self) -> int:
        crawl = self._crawl
        batch, unhanded = crawl.settings.claim_batch, self._unhanded()
        if self._is_dry or unhanded > batch // 2 or not crawl.crawler.engine.running:
            return 0
        if any(one.claim is not None and one.claim.is_alone for one in crawl.working):
            return 0
        held = len(crawl.working) + crawl.committer.pending - self._held_up()
        return min(batch - unhanded, self._limit - held)

    def _held_up(self) -> int:
        """Return how many pages in hand may be waiting for something of a blocked slot."""
        if not self._crawl.gate.held_up:
            return 0
        return min(sum(one.is_scraping for one in self._crawl.working), _MOST_HELD_UP)

    async def _claim(self) -> bool:
        room = self._room()
        if room <= 0:
            return False
        self._again_in = math.inf
        claims = await self._take(room)
        if not claims and self._crawl.is_quiet:
            claims = await self._take(1, alone=True)
        self._is_dry = not claims
        begun = [one for claim in claims if (one := await self._begin(claim)) is not None]
        if self._crawl.tenancies.lacks(self._crawl.unbegun()):
            self._crawl.gate.on_need()
        await self._crawl.refresh_cookies([request for request, _ in begun])
        for request, leg in begun:
            if leg.execution.is_of_task:
                self._hand(request, leg)
            else:
                self._hand_stored(request, leg)
        in_hand = self._crawl.tenancies.soonest_room(self._crawl.unbegun())
        self._again_in = min(self._again_in, in_hand)
        return bool(claims)

    async def _take(self, most: int, *, alone: bool = False) -> list[Claim]:
        """Claim what the limits in hand, and those that can be had, let start soon."""
        crawl = self._crawl
        async with crawl.settling:
            tenancies = crawl.tenancies
            hand = Hand(
                rooms=tenancies.rooms(crawl.unbegun()),
                shared=tenancies.shared,
                slot_terms=tenancies.slot_terms,
            )
            asked_at = time.monotonic()
            claims = await crawl.graph.claim(most, alone=alone, hand=hand)
            tenancies.take(hand.grants, asked_at)
        if hand.again_in is not None:
            self._again_in = min(self._again_in, hand.again_in)
        return claims

    async def _begin(self, claim: Claim) -> tuple[Request, Leg] | None:
        """Build the request of a claim; None if its execution is over before it began."""
        crawl = self._crawl
        crawl.claimed += 1
        crawl.crawler.stats.inc_value("itemgraph/claimed")
        task = crawl.tasks.get(claim.task) or crawl.task_of_callback(claim.task)
        execution = crawl.begin(claim=claim, task=task)
        leg = execution.open_leg(is_own=True)
        execution.item = Item.claimed(claim, crawl.graph)
        execution.limits = crawl.graph.limiting.of_claim(claim)
        try:
            if task.is_callback:
                request = translation.stored_request(crawl.spider, claim)
            else:
                request = translation.build_request(crawl.spider, task, execution.item)
        except Exception as error:  # noqa: BLE001 - whatever the user's request= raises
            kind = "request" if isinstance(error, ItemGraphError) else None
            url = str(claim.item.data.get("url", ""))
            execution.fail(crawl.error_of(execution, error, kind=kind, url=url))
            leg.close()
            return None
        slot = translation.slot_of(request)
        if slot != claim.slot and not claim.is_refiled:
            crawl.forget(execution)
            crawl.crawler.stats.inc_value("itemgraph/refiled")
            await crawl.graph.refile(claim, slot)
            return None
        return request, leg

    def _hand(self, request: Request, leg: Leg) -> None:
        leg.is_retryable = not request.meta.get("dont_retry")
        task = leg.execution.task
        if task is not None and task.autothrottle is False:
            request.meta.setdefault("autothrottle_dont_adjust_delay", True)
        request.meta.update({"dont_retry": True, translation.LEG: leg})
        self._crawl.crawler.engine.crawl(request)
        if leg.state is LegState.OFFERED:
            why = ItemGraphError(
                "Scrapy's offsite filter (allowed_domains) or another handler of request_scheduled "
                "refused the request"
            )
            leg.execution.refuse(
                self._crawl.error_of(leg.execution, why, kind="refused", url=request.url)
            )
            leg.close()

    def _hand_stored(self, request: Request, leg: Leg) -> None:
        """Hand out a request that passed the engine when it was yielded."""
        leg.is_retryable = False
        ttl = request.meta.get(checks.TTL)
        if ttl is not None:
            leg.execution.add(SetTTL(ttl))
        request.meta[translation.LEG] = leg
        self._push(request, leg)

    async def _pause(self, longest: float) -> None:
        """Wait until there is something to look at: our own doing, a NOTIFY, or the time."""
        others = await either(self._wake, self._crawl.graph.wait(longest))
        if not others.cancelled():
            others.result()
            self._is_dry = False

    # The end

    async def _look_for_end(self) -> float:
        """Set `ended` when nothing is left to do; return how long to wait before looking again."""
        crawl = self._crawl
        poll = _POLL[crawl.settings.idle]
        if not crawl.has_started or not crawl.is_quiet or not self._is_dry or crawl.is_over:
            return poll
        if await crawl.graph.learn_callbacks():
            self._is_dry = False
            return 0.0
        remaining = await crawl.graph.remaining()
        if not (crawl.claimed or crawl.has_said_idle or remaining.has_some):
            crawl.has_said_idle = True
            await self._say_why_idle()
        if crawl.settings.idle == "wait" or not crawl.is_quiet:
            return poll
        if remaining.is_over:
            await crawl.graph.mark_started()
            await crawl.graph.finish_run()
            crawl.is_over = True
            crawl.ended.set()
            translation.wake_engine(crawl.crawler)
            return poll
        return poll if remaining.next_retry is None else min(poll, max(remaining.next_retry, 0.05))

    async def _say_why_idle(self) -> None:
        """Say that there is nothing to do, why, and what would change that."""
        logger.info("Nothing to do now", extra={"action": "idle"})
        await self._crawl.log_summary()
        logger.info(
            "To run what is fresh: scrapy itemgraph expire ID, another version= of its task, or "
            "wait for its ttl; to add work: seeds, or scrapy itemgraph add",
            extra={"action": "idle"},
        )
