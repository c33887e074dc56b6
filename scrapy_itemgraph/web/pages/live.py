"""What moves on a page, as server-sent events: one look a crawl, however many tabs are open."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from pydantic import AwareDatetime
from starlette.responses import StreamingResponse

from scrapy_itemgraph.model import counts
from scrapy_itemgraph.web.access import Reader
from scrapy_itemgraph.web.graphs import CrawlGraph
from scrapy_itemgraph.web.pages.crawls import overview_of
from scrapy_itemgraph.web.pages.links import of_crawl
from scrapy_itemgraph.web.pages.rendering import part
from scrapy_itemgraph.web.pages.routes import PageRoute

if TYPE_CHECKING:
    from scrapy_itemgraph.graph import ItemGraph
    from scrapy_itemgraph.web.streams import Streams

router = APIRouter(route_class=PageRoute)

PARTS = ("state", "health", "numbers", "plot", "tasks", "workers", "failures-badge")


@router.get("/crawls/{crawl:segment}/live", name="live")
async def live(
    request: Request, visitor: Reader, graph: CrawlGraph, since: AwareDatetime | None = None
) -> StreamingResponse:
    """Send what changes of a crawl, as long as somebody listens.

    `since` is when the page was made that listens: what was seen before it is known to it.
    """
    root: str = request.scope.get("root_path", "").rstrip("/")
    streams: Streams = request.app.state.streams
    key = ("cockpit", root, request.path_params["crawl"])
    read = partial(_seen, graph, root)
    return streams.answer(request, visitor, key, read, event="parts", since=since)


def _seen(graph: ItemGraph, root: str) -> dict[str, Any]:
    """Return the HTML of the parts that move, by name, and what tells that lists are outdated."""

    def to(name: str, crawl: str = graph.crawl, **filters: Any) -> str:
        return root + of_crawl(crawl, name, **filters)

    seen = overview_of(graph)
    parts = {name: part(f"parts/{name}.html", to=to, **seen) for name in PARTS}
    one = seen["one"]
    stamp = counts.total([one["failures"], one["refusals"]])
    # An estimate differs from look to look, and says nothing of what is new.
    is_exact = not isinstance(stamp, counts.Estimate)
    return {"parts": parts, "stamps": {"failures": stamp} if is_exact else {}}
