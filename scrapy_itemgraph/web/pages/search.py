"""Finding items: by an id or an alias at once, and in other ways among the newest."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.web.access import Reader
from scrapy_itemgraph.web.graphs import CrawlGraph
from scrapy_itemgraph.web.pages import links
from scrapy_itemgraph.web.pages.rendering import page
from scrapy_itemgraph.web.pages.routes import PageRoute

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy_itemgraph.store.admin.item_search import FoundItem
    from scrapy_itemgraph.web.searches import Searches

router = APIRouter(route_class=PageRoute)

WAYS = {
    "exact": "exactly this URL, id or alias",
    "prefix": "names that begin so",
    "part": "names and URLs with this in them",
    "path": "a JSON path in the data",
}
_SHOWN = 50


@router.get("/crawls/{crawl:segment}/search", name="search")
async def search(
    request: Request, visitor: Reader, graph: CrawlGraph, q: str = "", by: str = "exact"
) -> Response:
    """Find items; an exact one is shown at once."""
    searches: Searches = request.app.state.searches
    found: Sequence[FoundItem] = ()
    note = ""
    if q and by == "exact":
        if await run_in_threadpool(graph.get, q) is not None:
            root = request.scope.get("root_path", "").rstrip("/")
            return RedirectResponse(root + links.of_crawl(graph.crawl, "item", id=q), 303)
        note = "No item has exactly this URL, id or alias; names with this in them:"
        by = "part"
    if q:
        try:
            result = await searches.run(visitor, partial(graph.lookup.search, q, by, _SHOWN))
        except OperationError as error:
            note = f"{error}"
        else:
            found = result.items
            if not result.is_whole:
                note += " The newest 100,000 items were looked through."
            if len(found) == _SHOWN:
                note += f" These are the newest {_SHOWN}."
    return await run_in_threadpool(
        page,
        request,
        "search.html",
        visitor=visitor,
        crawl=graph.crawl,
        tab="search",
        ways=WAYS,
        q=q,
        by=by,
        found=found,
        note=note.strip(),
    )
