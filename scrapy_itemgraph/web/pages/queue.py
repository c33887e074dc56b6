"""The queue of crawls: in which order they run, why one waits, and what people do with it."""

from __future__ import annotations

from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse
from pydantic import AwareDatetime
from starlette.responses import StreamingResponse

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.model import counts, crawl_waits, crawl_words, periods
from scrapy_itemgraph.model.crawl_states import State
from scrapy_itemgraph.tools.wording import format_period
from scrapy_itemgraph.web import bodies
from scrapy_itemgraph.web.access import Reader
from scrapy_itemgraph.web.graphs import AllGraphs, CrawlGraph
from scrapy_itemgraph.web.pages import links, summaries
from scrapy_itemgraph.web.pages.rendering import page, part
from scrapy_itemgraph.web.pages.routes import PageRoute

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from scrapy_itemgraph.graph import ItemGraph
    from scrapy_itemgraph.model.crawl_states import ManagedCrawl
    from scrapy_itemgraph.store.admin.queue_pages import QueuedCrawl
    from scrapy_itemgraph.store.admin.runner_reports import RunnerLine
    from scrapy_itemgraph.web.streams import Streams

router = APIRouter(route_class=PageRoute)

_SHOWN = 50
_EVENTS = 20
_JOBS = 10

Given = Annotated[str, Query(max_length=2000)]


@router.get("/queue", name="queue")
def queue(
    request: Request,
    visitor: Reader,
    graphs: AllGraphs,
    *,
    state: Given = "",
    tag: Given = "",
    after: Given = "",
) -> HTMLResponse:
    """Show the queue: active crawls in the order of their turns, and the others below."""
    filters = {"state": state, "tag": tag}
    seen = _seen(graphs.served, root_of(request), after=after, **filters)
    return page(
        request,
        "queue.html",
        visitor=visitor,
        tab="queue",
        live_at=f"{root_of(request)}/queue/live{links.query(after=after, **filters)}",
        filters=filters,
        states=[str(one) for one in State],
        is_first=not after,
        **seen,
    )


@router.get("/queue/live", name="queue-live")
async def live(
    request: Request,
    visitor: Reader,
    graphs: AllGraphs,
    *,
    state: Given = "",
    tag: Given = "",
    after: Given = "",
    since: AwareDatetime | None = None,
) -> StreamingResponse:
    """Send the queue whenever it changes, as long as somebody listens."""
    streams: Streams = request.app.state.streams
    root = root_of(request)
    asked = {"state": state, "tag": tag, "after": after}
    read = partial(parts_of_queue, graphs.served, root, visitor.may_steer, **asked)
    key = ("queue", root, visitor.may_steer, *asked.values())
    return streams.answer(request, visitor, key, read, event="parts", since=since)


def root_of(request: Request) -> str:
    """Return where the cockpit is mounted."""
    root: str = request.scope.get("root_path", "").rstrip("/")
    return root


def parts_of_queue(graph: ItemGraph, root: str, may_steer: bool, **asked: str) -> dict[str, Any]:
    """Return the HTML of the part of the queue's page that moves."""
    here = f"{root}/queue{links.query(**asked)}"
    given = {"root": root, "to": partial(to_crawl, root), "may_steer": may_steer, "here": here}
    html = part("parts/queue.html", **given, **_seen(graph, root, **asked))
    return {"parts": {"queue": html}, "stamps": {}}


def _seen(graph: ItemGraph, root: str, *, state: str, tag: str, after: str) -> dict[str, Any]:
    """Return what the queue's page shows of it."""
    if state and state not in set(State):
        raise OperationError(f"there is no state {state!r:.80}; they are {', '.join(State)}")
    states = [State(state)] if state else []
    found = graph.queue.page(states, tag=tag or None, after=after or None, limit=_SHOWN)
    groups = [
        (str(name), list(rows)) for name, rows in groupby(found.rows, lambda one: one.crawl.state)
    ]
    several = len({one.crawl.project for one in found.rows}) > 1
    is_filtered = bool(state or tag or after)
    return {
        "groups": groups,
        "overviews": _overviews(graph, found.rows),
        "several_projects": several,
        "has_any": bool(found.rows) or is_filtered,
        "next_cursor": found.next,
        "further": f"{root}/queue{links.query(state=state, tag=tag, after=found.next)}",
        "runners": _in_short(graph.runners.list()),
    }


def _in_short(runners: Sequence[RunnerLine]) -> str:
    """Say how many runners live, and how many of their places have a process."""
    living = [one for one in runners if one.lives]
    if not living:
        return "no runner lives"
    busy, places = sum(one.busy for one in living), sum(one.places for one in living)
    lives = "runner lives" if len(living) == 1 else "runners live"
    return f"{len(living)} {lives}, {busy} of {counts.many(places, 'place')} busy"


def to_crawl(root: str, name: str, crawl: str, **filters: Any) -> str:
    """Return the address of a page of a crawl."""
    return root + links.of_crawl(crawl, name, **filters)


def _overviews(graph: ItemGraph, rows: Sequence[QueuedCrawl]) -> dict[str, Any]:
    """Return how crawls stand, by name."""
    if not rows:
        return {}
    found = graph.crawls.overview(*(one.crawl.name for one in rows), limit=len(rows))
    return {one.crawl: summaries.of_overview(one) for one in found}


@router.get("/crawls/{crawl:segment}/queue", name="steer")
def crawl(
    request: Request,
    visitor: Reader,
    graph: CrawlGraph,
    before: Annotated[int | None, Query(ge=1, lt=bodies.INT64)] = None,
) -> HTMLResponse:
    """Show a crawl of the queue: its terms, why it runs or waits, its jobs and its history."""
    name = graph.crawl
    if not graph.queue.named([name]):
        graph.crawls.next_start()  # or a NotFoundError that there is no such crawl
        return page(request, "steer.html", visitor=visitor, crawl=name, tab="queue", found=None)
    seen = _of_crawl(graph, before)
    root = root_of(request)
    live_at = None if before else f"{root}/queue/{links.segment(name)}/live"
    return page(
        request,
        "steer.html",
        visitor=visitor,
        crawl=name,
        tab="queue",
        live_at=live_at,
        terms=_as_fields(seen["found"]),
        runners=[one.name for one in seen["waits"].runners],
        **seen,
    )


@router.get("/queue/{crawl:segment}/live", name="steer-live")
async def live_crawl(
    request: Request, visitor: Reader, graph: CrawlGraph, since: AwareDatetime | None = None
) -> StreamingResponse:
    """Send a crawl of the queue whenever it changes, as long as somebody listens."""
    streams: Streams = request.app.state.streams
    root, may_steer = root_of(request), visitor.may_steer
    key = ("steer", root, may_steer, request.path_params["crawl"])
    read = partial(parts_of_crawl, graph, root, may_steer)
    return streams.answer(request, visitor, key, read, event="parts", since=since)


def parts_of_crawl(graph: ItemGraph, root: str, may_steer: bool) -> dict[str, Any]:
    """Return the HTML of the parts of a crawl's page that move."""
    seen = _of_crawl(graph)
    here = root + links.of_crawl(graph.crawl, "queue")
    given = {"root": root, "to": partial(to_crawl, root), "may_steer": may_steer, "here": here}
    parts = {
        "steer": part("parts/steer.html", **given, **seen),
        "failures-badge": part("parts/failures-badge.html", **seen),
    }
    return {"parts": parts, "stamps": {}}


def _of_crawl(graph: ItemGraph, before: int | None = None) -> dict[str, Any]:
    """Return what the page of a crawl of the queue shows of it."""
    name = graph.crawl
    waits = graph.queue.explain(name)
    events = graph.queue.history(name, before=before, limit=_EVENTS)
    (overview,) = graph.crawls.overview(name)
    numbers = summaries.of_overview(overview)
    return {
        "found": waits.crawl,
        "waits": waits,
        "sentences": list(crawl_waits.sentences(waits)),
        "one": numbers,
        "progress": numbers["progress"],
        "failures_badge": counts.shown(numbers["failures"]) if numbers["failures"] else "",
        "processes": graph.queue.processes(name),
        "jobs": graph.jobs.list(crawl=name, limit=_JOBS),
        "schedules": graph.schedules.list(crawl=name, limit=_JOBS),
        "events": [(one, crawl_words.details(one.detail)) for one in events],
        "older": events[-1].id if len(events) == _EVENTS else None,
    }


def _as_fields(one: ManagedCrawl) -> dict[str, Any]:
    """Return a crawl's terms as the fields of its form have them."""
    limit = "" if one.time_limit is None else _period(one.time_limit)
    terms = {"nice": one.nice, "concurrency": one.concurrency, "time_limit": limit}
    return terms | {name: getattr(one, name) or "" for name in ("tag", "note", "resource")}


def _period(period: timedelta) -> str:
    """Return a period as it may be typed, exactly."""
    seconds = period.total_seconds()
    text = format_period(seconds).replace(" ", "")
    return text if periods.parse_period(text, "it") == period else f"{seconds:g}"
