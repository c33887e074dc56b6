"""One item with all that is known of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from starlette.responses import Response

from scrapy_itemgraph.exceptions import NotFoundError
from scrapy_itemgraph.model import item_names
from scrapy_itemgraph.store.admin.neighbours import Neighbour
from scrapy_itemgraph.web.access import Reader
from scrapy_itemgraph.web.graphs import CrawlGraph
from scrapy_itemgraph.web.pages import blobs
from scrapy_itemgraph.web.pages.rendering import page
from scrapy_itemgraph.web.pages.routes import ItemName, PageRoute

if TYPE_CHECKING:
    from collections.abc import Collection

    from scrapy_itemgraph.graph import ItemGraph
    from scrapy_itemgraph.model.snapshots import ItemSnapshot

router = APIRouter(route_class=PageRoute)

_MOST_MADE = 12
_GENERATIONS = 4
_MOST_FAILURES = 3  # of an item that stand at the top of its page


@router.get("/crawls/{crawl:segment}/item", name="item")
def item(request: Request, visitor: Reader, graph: CrawlGraph, name: ItemName) -> HTMLResponse:
    """Show an item, by its id or an alias."""
    found = _get(graph, name)
    results = graph.results(found.id)
    root = request.scope.get("root_path", "").rstrip("/")
    url, method = item_names.page_of(found.data)
    near = graph.lookup.neighbours(found.id, _MOST_MADE)
    failed = graph.failures.of_item(found.id) if any(one.is_held for one in results) else {}
    return page(
        request,
        "item.html",
        visitor=visitor,
        crawl=graph.crawl,
        tab="",
        asked=name,
        item=found,
        shown=item_names.label_of(found.id, url, method),
        aliases=_other_names(found),
        url=url,
        makers=_makers(graph, found),
        near=near,
        results=results,
        why={one.task: one.reasons for one in graph.explain(found.id)},
        failed=failed,
        failures=[graph.failures.get(one) for one in list(failed.values())[:_MOST_FAILURES]],
        attempts=graph.lookup.attempts(found.id, 20),
        states={one.task: one.state for one in results},
        needs=_needs(graph, {one.task for one in results}),
        blobs=blobs.listed(graph, found.id, root),
    )


@router.get("/crawls/{crawl:segment}/item.json", name="item_json")
def item_json(_: Reader, graph: CrawlGraph, name: ItemName) -> Response:
    """Return an item's data and results as JSON, for saving."""
    found = _get(graph, name)
    document = {
        "id": found.id,
        "aliases": found.aliases,
        "tags": dict(found.tags),
        "data": found.data,
        "metadata": {one.task: one.metadata for one in graph.results(found.id)},
    }
    text = json.dumps(document, ensure_ascii=False, indent=2, default=str)
    headers = {"Content-Disposition": 'attachment; filename="item.json"'}
    return Response(text, headers=headers, media_type="application/json")


def _get(graph: ItemGraph, name: str) -> ItemSnapshot:
    found = graph.get(graph.lookup.page(name).item)  # raises, and says what is written alike
    if found is None:
        raise NotFoundError(f"the item {name!r} has just been deleted")
    return found


def _other_names(item: ItemSnapshot) -> list[str]:
    """Return the aliases that say something to a person: none by which requests are known."""
    return sorted(
        name for name in item.aliases if name != item.id and not item_names.is_request(name)
    )


def _makers(graph: ItemGraph, item: ItemSnapshot) -> list[Neighbour]:
    """Return up to `_GENERATIONS` items that led to an item, its own maker last."""
    found: list[Neighbour] = []
    name = item.created_by
    for _ in range(_GENERATIONS):
        above = graph.get(name) if name else None
        if above is None or above.id in {item.id, *(one.item for one in found)}:
            break
        found.insert(0, Neighbour(above.id, *item_names.page_of(above.data)))
        name = above.created_by
    return found


def _needs(graph: ItemGraph, tasks: Collection[str]) -> dict[str, list[str]]:
    """Return the names of the tasks that each of an item's tasks needs, by its own name."""
    if len(tasks) < 2:  # noqa: PLR2004 - one needs no other
        return {}
    return {
        task.name: [need for need in task.depends_on if need in tasks]
        for task in graph.tasks.declared()
        if task.name in tasks
    }
