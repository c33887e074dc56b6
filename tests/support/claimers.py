"""A claimer of the parts that stand in memory, without limits."""

from __future__ import annotations

import asyncio
import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.model import tasks
from scrapy_itemgraph.model.limits import SlotTerms
from scrapy_itemgraph.worker.claims.claim_pace import ClaimPace
from scrapy_itemgraph.worker.claims.claimer import Claimer
from scrapy_itemgraph.worker.claims.hand_out import HandOut
from scrapy_itemgraph.worker.claims.no_work_left import NoWorkLeft
from scrapy_itemgraph.worker.claims.suspects import Suspects
from scrapy_itemgraph.worker.spider.link_depths import LinkDepths
from scrapy_itemgraph.worker.spider_start import SpiderStart

if TYPE_CHECKING:
    from support.parts import Parts


class Limiters:
    """No limits."""

    shared = frozenset()

    def __init__(self) -> None:
        self.wanted, self.lock = asyncio.Event(), asyncio.Lock()

    def rooms(self, _: Any, __: float) -> dict[int, int]:
        """Return no limits in hand."""
        return {}

    def take(self, *_: Any) -> None:
        """Take nothing."""

    def lacks(self, _: Any) -> bool:
        """Tell that nothing is lacking."""
        return False

    def soonest_room(self, _: Any) -> float:
        """Return that no limit will have room."""
        return math.inf


def claimer(parts: Parts, *, has_started: bool = False, batch: int = 25) -> Claimer:
    """Return the claimer of some parts, and the event that says that all is done."""
    parts.start, parts.over = SpiderStart(), asyncio.Event()
    if has_started:
        parts.start.end()
    graph, active, ready, queue = parts.graph, parts.active, parts.ready, parts.queue
    return Claimer(
        graph=graph,
        active=active,
        ready=ready,
        outbox=parts.outbox,
        limiters=Limiters(),
        slots=SimpleNamespace(all_terms=SlotTerms),
        gate=SimpleNamespace(held_up=0),
        crawler=parts.crawler,
        pace=ClaimPace(least=batch, most=batch),
        suspects=Suspects(graph=graph, active=active, ready=ready, outbox=parts.outbox),
        hand_out=HandOut(
            graph=graph,
            active=active,
            ready=ready,
            queue=queue,
            crawler=parts.crawler,
            spider=parts.spider,
            sessions=parts.sessions,
            callbacks=parts.callbacks,
            page_rules=parts.page_rules,
            tasks={"parse": tasks.of_callback("parse", {})},
            depths=LinkDepths(parts.crawler),
            keep_logs=0,
        ),
        no_work_left=NoWorkLeft(
            graph=graph,
            active=active,
            queue=queue,
            start=parts.start,
            over=parts.over,
            idle="close",
            warn_of_empty_start=lambda: None,
        ),
        news=parts.news,
    )
