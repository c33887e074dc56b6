"""What monitoring asks: /healthz and /metrics."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Request, Response
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily

from scrapy_itemgraph.exceptions import ItemGraphError, NotFoundError
from scrapy_itemgraph.web.access import Reader
from scrapy_itemgraph.web.documents import answer
from scrapy_itemgraph.web.parameters import REFUSALS
from scrapy_itemgraph.web.problems import RETRY_AFTER, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import Metric

    from scrapy_itemgraph.web.graphs import Graphs

TEXT = "text/plain; version=0.0.4; charset=utf-8"
REMEMBERED = 5.0  # seconds that numbers are given out without being counted again
SHARE = 0.1  # of the time is spent counting, at most
MOST_CRAWLS, MOST_TASKS = 100, 200  # of which there are numbers: labels are bounded
PATIENCE = 5.0  # seconds that the database has to answer
HEALTH_REMEMBERED = 1.0  # seconds that all who ask get the same answer

router = APIRouter(tags=["monitoring"], responses=REFUSALS)

_OF_TASKS = {
    "waiting": "Work that could be claimed",
    "delayed": "Work that waits for a later time",
    "claimed": "Work that workers have",
    "completed": "Results",
    "fresh": "Results that are fresh",
    "due": "Results whose time is over, and which no run has taken up",
    "held": "Pairs that do not run until somebody handles them",
    "failures": "Failures that nobody has handled",
    "refusals": "Refusals that nobody has handled",
}


class Numbers:
    """Collects the numbers of all crawls; those of the last seconds are given out again."""

    def __init__(self, graphs: Graphs) -> None:
        self._graphs = graphs
        self._lock = threading.Lock()
        self._text = b""
        self._due_at = 0.0
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def text(self) -> bytes:
        """Return the numbers in Prometheus's words."""
        if not self._lock.acquire(timeout=0 if self._text else PATIENCE):
            if not self._text:
                raise Problem(503, "the database does not answer", RETRY_AFTER)
            return self._text  # somebody counts just now
        try:
            began = time.monotonic()
            if began >= self._due_at:
                self._text = generate_latest(self._registry)
                took = time.monotonic() - began
                self._due_at = time.monotonic() + max(REMEMBERED, took / SHARE)
            return self._text
        finally:
            self._lock.release()

    def describe(self) -> list[Metric]:
        """Return nothing: what there is, is known when it is counted."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Count, as `status` does."""
        items = GaugeMetricFamily("itemgraph_items", "Items", labels=["crawl"])
        workers = GaugeMetricFamily("itemgraph_workers", "Workers", labels=["crawl"])
        claims = GaugeMetricFamily("itemgraph_worker_claims", "Claims", labels=["crawl"])
        tasks = {
            name: GaugeMetricFamily(f"itemgraph_{name}", said, labels=["crawl", "task"])
            for name, said in _OF_TASKS.items()
        }
        for crawl in self._graphs.served.crawls.names()[:MOST_CRAWLS]:
            found = self._status(crawl)
            if found is None:
                continue
            items.add_metric([crawl], found["items"])
            workers.add_metric([crawl], len(found["workers"]))
            claims.add_metric([crawl], sum(one["claims"] for one in found["workers"]))
            for task in found["tasks"][:MOST_TASKS]:
                for name, family in tasks.items():
                    family.add_metric([crawl, task["name"]], task[name])
        yield from (items, workers, claims, *tasks.values())

    def _status(self, crawl: str) -> dict[str, Any] | None:
        try:
            return self._graphs.of(crawl).status()
        except NotFoundError:  # it has just been deleted
            return None


class Health:
    """Asks whether the database answers: once at a time, and once a second, whoever asks us.

    It has a connection and a thread of its own, so that it knows while all others are busy, and
    nobody keeps more than these two busy by asking.
    """

    def __init__(self, graphs: Graphs) -> None:
        self._graphs = graphs
        self._limiter = CapacityLimiter(1)
        self._look: asyncio.Task[bool] | None = None
        self._looked_at = 0.0

    async def is_good(self) -> bool:
        """Tell whether the database answers, within seconds."""
        look, now = self._look, time.monotonic()
        is_over = look is None or (look.done() and now >= self._looked_at + HEALTH_REMEMBERED)
        if look is None or is_over or look.cancelled():
            look = self._look = asyncio.create_task(self._ask())
            self._looked_at = now
        try:
            async with asyncio.timeout(PATIENCE):
                return await asyncio.shield(look)
        except TimeoutError:
            return False

    async def _ask(self) -> bool:
        try:
            await to_thread.run_sync(
                self._graphs.health.database.ping, abandon_on_cancel=True, limiter=self._limiter
            )
        except ItemGraphError:
            return False
        return True


@router.get("/metrics", response_class=Response, responses={200: {"content": {TEXT: {}}}})
def metrics(request: Request, _: Reader) -> Response:
    """Return numbers for Prometheus: by crawl and task, counted every five seconds at most."""
    numbers: Numbers = request.app.state.numbers
    return Response(numbers.text(), media_type=TEXT)


@router.head("/healthz", include_in_schema=False)
@router.get("/healthz", response_model=dict[str, str])
async def health(request: Request) -> Response:
    """Tell whether the database answers; nobody needs a token for it."""
    asked: Health = request.app.state.health
    if not await asked.is_good():
        raise Problem(503, "the database does not answer", RETRY_AFTER)
    return answer({"status": "ok"})
