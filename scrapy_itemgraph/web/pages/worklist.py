"""Outstanding work: why it runs or does not, and what people do with it."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from starlette.responses import Response

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.model import counts
from scrapy_itemgraph.model.operations import DeleteItem, Expire
from scrapy_itemgraph.model.set_aside import Hold
from scrapy_itemgraph.web.access import Operator, Reader
from scrapy_itemgraph.web.graphs import CrawlGraph
from scrapy_itemgraph.web.pages import links, messages
from scrapy_itemgraph.web.pages.rendering import page, short
from scrapy_itemgraph.web.pages.routes import Fields, ItemName, PageRoute, back_to

router = APIRouter(route_class=PageRoute)

_SHOWN = 50
# The states of work, which stand in addresses, in the words of `status`.
_STATES = {
    "ready": "waiting",
    "delayed": "later",
    "claimed": "running",
    "held": "failed, refused or given up",
    "gone": "gone",
    "skipped": "skipped",
    "stashed": "stashed",
    "left": "left",
}
_WORDS = {**_STATES, "held": "held"}


@router.get("/crawls/{crawl:segment}/worklist", name="worklist")
def worklist(
    request: Request,
    visitor: Reader,
    graph: CrawlGraph,
    *,
    task: str = "",
    slot: str = "",
    state: str = "",
    after: str = "",
) -> HTMLResponse:
    """Show work in one of its states, a page at a time."""
    found = graph.lookup.work(
        task or None, slot=slot or None, state=state or None, after=after or None, limit=_SHOWN
    )
    return page(
        request,
        "worklist.html",
        visitor=visitor,
        crawl=graph.crawl,
        tab="worklist",
        task_names=list(graph.tasks.tags()),
        states=_STATES,
        words=_WORDS,
        filters={"task": task, "slot": slot, "state": state},
        is_first=not after,
        rows=found.rows,
        next_cursor=found.after,
    )


@router.get("/crawls/{crawl:segment}/explain", name="explain")
def explain(
    request: Request,
    visitor: Reader,
    graph: CrawlGraph,
    name: ItemName,
    task: str = "",
) -> HTMLResponse:
    """Say why work runs, or does not."""
    asked = graph.lookup.page(name)
    found = graph.explain(asked.item, task or None)
    return page(
        request,
        "explain.html",
        visitor=visitor,
        crawl=graph.crawl,
        tab="worklist",
        id=asked.item,
        url=asked.url,
        method=asked.method,
        explanations=found,
    )


@router.post("/crawls/{crawl:segment}/expire", name="expire")
def expire(request: Request, _: Operator, graph: CrawlGraph, form: Fields) -> Response:
    """Let a result of an item count as stale, or all of them."""
    name, task = form.exact("id"), form["task"] or None
    graph.apply([Expire(id=name, task=task)])
    what = f"{task} of {short(name)} is expired" if task else f"{short(name)} is expired"
    return messages.say(request, back_to(request, links.of_crawl(graph.crawl)), f"{what}.")


@router.post("/crawls/{crawl:segment}/ask-again", name="ask again")
def ask_again(request: Request, _: Operator, graph: CrawlGraph, form: Fields) -> Response:
    """Have pages asked again that are gone: all of the crawl, or of a task."""
    number = graph.failures.handle_gone(form.exact("task") or None)
    path = back_to(request, links.of_crawl(graph.crawl, "worklist"))
    if not number:
        return messages.say(request, path, "No page was gone any more.", kind="warn")
    is_one = number == 1
    said = f"{counts.many(number, 'page')} {'is' if is_one else 'are'} asked again by the next run."
    return messages.say(request, path, said)


@router.post("/crawls/{crawl:segment}/set-aside", name="set aside")
def set_aside(request: Request, _: Operator, graph: CrawlGraph, form: Fields) -> Response:
    """Skip or stash a page, or all that have a part of a URL; or free it."""
    hold, name, part = _hold(form["hold"]), form.exact("id"), form["part"]
    path = back_to(request, links.of_crawl(graph.crawl, "worklist"))
    if form["free"]:
        graph.pages.free(hold, [name])
        return messages.say(request, path, f"{_shown(graph, name)} is {hold} no more.")
    if name:
        graph.pages.set_aside(hold, [name])
        return messages.say(request, path, f"{_shown(graph, name)} is {hold}.")
    if not part:
        raise OperationError("say which part of a URL these pages have")
    number = graph.pages.set_aside_all(hold, part=part)
    are = "is" if number == 1 else "are"
    return messages.say(request, path, f"{counts.many(number, 'page')} {are} {hold} now.")


def _hold(given: str) -> Hold:
    try:
        return Hold(given)
    except ValueError:
        raise OperationError(f"pages are skipped, stashed or left, and not {given!r:.40}") from None


def _shown(graph: ItemGraph, name: str) -> str:
    return short(graph.lookup.page(name).shown)


@router.post("/crawls/{crawl:segment}/delete", name="delete")
def delete(request: Request, _: Operator, graph: CrawlGraph, form: Fields) -> Response:
    """Delete an item."""
    name = form.exact("id")
    graph.apply([DeleteItem(id=name)])
    return messages.say(
        request, back_to(request, links.of_crawl(graph.crawl)), f"{short(name)} is deleted."
    )


@router.post("/crawls/{crawl:segment}/nice", name="nice")
def nice(request: Request, _: Operator, graph: CrawlGraph, form: Fields) -> Response:
    """Set an item's priority, or take that back."""
    try:
        value = int(form["nice"]) if form["nice"] else None
    except ValueError:
        raise OperationError(f"nice is a whole number, not {form['nice']!r:.40}") from None
    name = form.exact("id")
    graph.set_nice(name, value)
    says = "has the nice of its tasks" if value is None else f"has nice {value}"
    path = back_to(request, links.of_crawl(graph.crawl))
    return messages.say(request, path, f"{short(name)} {says}.")
