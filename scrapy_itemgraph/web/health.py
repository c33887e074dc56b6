"""What monitoring asks: /healthz and /metrics."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Request, Response

from scrapy_itemgraph.exceptions import ItemGraphError
from scrapy_itemgraph.web.access import Reader
from scrapy_itemgraph.web.documents import answer
from scrapy_itemgraph.web.parameters import REFUSALS
from scrapy_itemgraph.web.problems import RETRY_AFTER, Problem

if TYPE_CHECKING:
    from scrapy_itemgraph.web.graphs import Graphs
    from scrapy_itemgraph.web.metrics import Numbers

TEXT = "text/plain; version=0.0.4; charset=utf-8"
PATIENCE = 5.0  # seconds that the database has to answer
HEALTH_REMEMBERED = 1.0  # seconds that all who ask get the same answer

router = APIRouter(tags=["monitoring"], responses=REFUSALS)


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


@router.get("/healthz", response_model=dict[str, str])
async def health(request: Request) -> Response:
    """Tell whether the database answers; nobody needs a token for it."""
    asked: Health = request.app.state.health
    if not await asked.is_good():
        raise Problem(503, "the database does not answer", RETRY_AFTER)
    return answer({"status": "ok"})
