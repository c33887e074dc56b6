"""One item with all that is known of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from starlette.responses import Response

from scrapy_itemgraph.exceptions import NotFoundError
from scrapy_itemgraph.model import item_names
from scrapy_itemgraph.web.access import Reader
from scrapy_itemgraph.web.graphs import CrawlGraph
from scrapy_itemgraph.web.pages import blobs, drawing, links
from scrapy_itemgraph.web.pages.rendering import page, short, title
from scrapy_itemgraph.web.pages.routes import ItemName, PageRoute

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy_itemgraph.graph import ItemGraph
    from scrapy_itemgraph.model.snapshots import ItemSnapshot
    from scrapy_itemgraph.store.admin.neighbours import Neighbours

router = APIRouter(route_class=PageRoute)

_NAME = 30  # characters of a name in a drawing
_MOST_MADE = 12
_MOST_ALIASES = 4
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
        maker=near.created_by,
        results=results,
        why={one.task: one.reasons for one in graph.explain(found.id)},
        failed=failed,
        failures=[graph.failures.get(one) for one in list(failed.values())[:_MOST_FAILURES]],
        attempts=graph.lookup.attempts(found.id, 20),
        graph=_drawn(graph, found, near, root),
        dependencies=_dependencies(graph, {one.task: one.state for one in results}, root),
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


def _drawn(graph: ItemGraph, item: ItemSnapshot, near: Neighbours, root: str) -> drawing.Drawing:
    """Draw where an item comes from, what it is also called, and what it made."""

    def node(name: str, shown: str, style: str = "", *lines: str) -> drawing.Node:
        href = root + links.of_crawl(graph.crawl, "item", id=name)
        return drawing.Node(name, short(shown, _NAME), lines, href, style, title(shown))

    tags = ", ".join(short(tag, 20) for tag in item.tags) or "no tags"
    nodes = [node(item.id, item_names.label(item.id, item.data), "here", tags)]
    edges = []
    child, maker = item.id, None if near.created_by is None else near.created_by.item
    for _ in range(_GENERATIONS):
        if maker is None or any(one.key == maker for one in nodes):
            break
        above = graph.get(maker)
        nodes.insert(0, node(maker, item_names.label(maker, above.data if above else None)))
        edges.append(drawing.Edge(maker, child))
        child, maker = maker, above.created_by if above else None
    for one in near.created:
        if all(one.item != known.key for known in nodes):
            nodes.append(node(one.item, item_names.label_of(one.item, one.url, one.method)))
        edges.append(drawing.Edge(item.id, one.item))
    if near.has_more:
        nodes.append(drawing.Node("", "… and more"))
        edges.append(drawing.Edge(item.id, ""))
    for name in _other_names(item)[:_MOST_ALIASES]:
        nodes.append(
            drawing.Node(f"alias {name}", short(name, _NAME), ("another name",), style="off")
        )
        edges.append(drawing.Edge(f"alias {name}", item.id, style="merged"))
    return drawing.drawn(nodes, edges, from_top=True)


def _dependencies(graph: ItemGraph, states: Mapping[str, str], root: str) -> drawing.Drawing | None:
    """Draw how the tasks of an item depend on each other, with the state of each; None: not."""
    edges = [
        drawing.Edge(need, task.name)
        for task in (graph.tasks.declared() if len(states) > 1 else ())
        if task.name in states
        for need in task.depends_on
        if need in states
    ]
    drawn = {name for edge in edges for name in (edge.start, edge.end)}
    href = root + links.of_crawl(graph.crawl, "tasks")
    nodes = [
        drawing.Node(name, short(name, _NAME), (state,), href, "", title(f"{name}: {state}"))
        for name, state in states.items()
        if name in drawn
    ]
    return drawing.drawn(nodes, edges) if edges else None
