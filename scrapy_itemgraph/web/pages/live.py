"""What moves on a page, as server-sent events: one look a crawl, however many tabs are open.

A crawl is looked at while somebody listens. How often follows from how long a look takes, so that
all looks together take little of the database's time. What a listener does not take is not kept
for it: it is sent away, and its browser comes back by itself.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from scrapy_itemgraph.exceptions import DatabaseError, ItemGraphError
from scrapy_itemgraph.web.access import Reader
from scrapy_itemgraph.web.graphs import AllGraphs, CrawlGraph
from scrapy_itemgraph.web.pages.crawls import overview_of
from scrapy_itemgraph.web.pages.links import of_crawl
from scrapy_itemgraph.web.pages.rendering import part
from scrapy_itemgraph.web.pages.routes import PageRoute

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scrapy_itemgraph.graph import ItemGraph
    from scrapy_itemgraph.web.graphs import Graphs

router = APIRouter(route_class=PageRoute)

INTERVAL = 2.0  # seconds between two looks at least
_SHARE = 0.02  # of the time is spent looking at most
_BACKLOG = 8  # events that a listener may be behind
_ALIVE = 15.0  # seconds after which an idle connection is written to

PARTS = ("state", "numbers", "plot", "tasks", "workers")


@dataclass(slots=True, eq=False)
class Feed:
    """The listeners of one crawl, and what was sent last."""

    graph: ItemGraph
    root: str
    listeners: set[asyncio.Queue[str | None]] = field(default_factory=set)
    parts: dict[str, str] = field(default_factory=dict)
    stamps: dict[str, Any] = field(default_factory=dict)
    away: str = ""
    looking: asyncio.Task[None] | None = None

    def join(self) -> asyncio.Queue[str | None]:
        """Return the events of a new listener, as they stand first."""
        queue: asyncio.Queue[str | None] = asyncio.Queue(_BACKLOG)
        if self.parts:
            queue.put_nowait(_event("parts", self.parts))
            queue.put_nowait(_event("stamps", self.stamps))
        self.listeners.add(queue)
        if self.looking is None or self.looking.done():
            self.looking = asyncio.create_task(self._look())
        return queue

    def leave(self, queue: asyncio.Queue[str | None]) -> None:
        """Forget a listener; without any nothing is looked at."""
        self.listeners.discard(queue)

    async def _look(self) -> None:
        while self.listeners:
            began = time.monotonic()
            try:
                seen = await run_in_threadpool(overview_of, self.graph)
            except ItemGraphError as error:
                self._tell_away(error)
            else:
                self._tell(seen)
            took = time.monotonic() - began
            await asyncio.sleep(max(INTERVAL, took / _SHARE))

    def _tell_away(self, error: ItemGraphError) -> None:
        text = f"The database is away: {error}" if isinstance(error, DatabaseError) else str(error)
        if text != self.away:
            self.away = text
            self._send(_event("away", f"{text} What stands here is as it was."))

    def _tell(self, seen: dict[str, Any]) -> None:
        def to(name: str, crawl: str = self.graph.crawl, **filters: Any) -> str:
            return self.root + of_crawl(crawl, name, **filters)

        now = {name: part(f"parts/{name}.html", to=to, **seen) for name in PARTS}
        now["failures-badge"] = part("parts/failures-badge.html", **seen)
        changed = {name: html for name, html in now.items() if self.parts.get(name) != html}
        stamps = {"failures": int(seen["one"].failures) + int(seen["one"].refusals)}
        self.parts = now
        if self.away:
            self.away, changed = "", now
        if changed:
            self._send(_event("parts", changed))
        if stamps != self.stamps:
            self.stamps = stamps
            self._send(_event("stamps", stamps))

    def _send(self, event: str) -> None:
        for queue in list(self.listeners):
            try:
                queue.put_nowait(event)
            except asyncio.QueueFull:
                # Too slow: its connection is ended, and the browser begins anew.
                self.leave(queue)
                while not queue.empty():
                    queue.get_nowait()
                queue.put_nowait(None)


_feeds: WeakKeyDictionary[Graphs, dict[tuple[str, str], Feed]] = WeakKeyDictionary()


def _feed(graphs: Graphs, graph: ItemGraph, root: str) -> Feed:
    of_graphs = _feeds.setdefault(graphs, {})
    return of_graphs.setdefault((graph.crawl, root), Feed(graph, root))


@router.get("/crawls/{crawl:segment}/live", name="live")
async def live(
    request: Request, _: Reader, graphs: AllGraphs, graph: CrawlGraph
) -> StreamingResponse:
    """Send what changes of a crawl, as long as somebody listens."""
    root = request.scope.get("root_path", "").rstrip("/")
    feed = _feed(graphs, graph, root)
    return StreamingResponse(
        _events(feed), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
    )


async def _events(feed: Feed) -> AsyncIterator[str]:
    queue = feed.join()
    yield "retry: 3000\n\n"
    try:
        while True:
            try:
                event = await asyncio.wait_for(queue.get(), _ALIVE)
            except TimeoutError:
                event = ": still here\n\n"
            if event is None:
                return
            yield event
    finally:
        feed.leave(queue)


def _event(name: str, data: Any) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"
