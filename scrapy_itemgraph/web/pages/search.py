"""Finding items: by an id or an alias at once, and in other ways among the newest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from starlette.responses import RedirectResponse, Response

from scrapy_itemgraph.web.access import Reader
from scrapy_itemgraph.web.graphs import CrawlGraph
from scrapy_itemgraph.web.pages import links
from scrapy_itemgraph.web.pages.rendering import page
from scrapy_itemgraph.web.pages.routes import PageRoute

if TYPE_CHECKING:
    from collections.abc import Sequence

router = APIRouter(route_class=PageRoute)

WAYS = (("exact", "exactly this id or alias"),)


@router.get("/crawls/{crawl:segment}/search", name="search")
def search(
    request: Request,
    visitor: Reader,
    graph: CrawlGraph,
    *,
    q: str = "",
    by: str = "exact",
    path: str = "",
) -> Response:
    """Find items; an exact one is shown at once."""
    found: Sequence[Any] = ()
    note = ""
    if q and by == "exact":
        if graph.get(q) is not None:
            root = request.scope.get("root_path", "").rstrip("/")
            return RedirectResponse(root + links.of_crawl(graph.crawl, "item", id=q), 303)
        note = "No item has this id or alias."
    return _shown(request, visitor, graph, q=q, by=by, path=path, found=found, note=note)


def _shown(request: Request, visitor: Reader, graph: CrawlGraph, **given: Any) -> HTMLResponse:
    return page(
        request,
        "search.html",
        visitor=visitor,
        crawl=graph.crawl,
        tab="search",
        ways=WAYS,
        **given,
    )
