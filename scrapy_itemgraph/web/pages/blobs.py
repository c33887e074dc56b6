"""Binary data of items: shown where it is a picture, and handed out to be saved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from scrapy_itemgraph.web import contents
from scrapy_itemgraph.web.access import Reader
from scrapy_itemgraph.web.graphs import CrawlGraph
from scrapy_itemgraph.web.pages.links import of_crawl
from scrapy_itemgraph.web.pages.routes import ItemName, PageRoute

if TYPE_CHECKING:
    from scrapy_itemgraph.graph import ItemGraph

router = APIRouter(route_class=PageRoute)

LARGEST_SHOWN = 8 * 1024 * 1024  # bytes


def listed(graph: ItemGraph, name: str, root: str) -> list[dict[str, Any]]:
    """Return an item's blobs, with the address of each, and whether it is shown as a picture."""
    found = []
    for one in graph.blobs.list(name):
        is_picture = contents.is_picture(one.mime) and one.size <= LARGEST_SHOWN
        href = root + of_crawl(graph.crawl, "blob", id=name, name=one.name)
        found.append({"blob": one, "href": href, "is_picture": is_picture})
    return found


@router.get("/crawls/{crawl:segment}/blob", name="blob")
def blob(request: Request, _: Reader, graph: CrawlGraph, item: ItemName, name: str) -> Response:
    """Hand out a blob: to be saved, or as a picture of a page of ours."""
    return contents.answer(request, graph.blobs.open(item, name))
