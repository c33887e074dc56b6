"""All crawls of the database, and one of them as a whole."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from scrapy_itemgraph.model import counts
from scrapy_itemgraph.store.admin.overview import CrawlState
from scrapy_itemgraph.web.access import Reader
from scrapy_itemgraph.web.graphs import AllGraphs, CrawlGraph
from scrapy_itemgraph.web.pages import plots, summaries
from scrapy_itemgraph.web.pages.rendering import page
from scrapy_itemgraph.web.pages.routes import PageRoute

if TYPE_CHECKING:
    from scrapy_itemgraph.graph import ItemGraph

router = APIRouter(route_class=PageRoute)


_SHOWN = 50


@router.get("/", name="crawls")
def crawls(request: Request, visitor: Reader, graphs: AllGraphs, after: str = "") -> HTMLResponse:
    """Show the crawls of the database: those in trouble first, then by name."""
    found = graphs.served.crawls.in_trouble_first(after=after, limit=_SHOWN)
    now = datetime.now(UTC)
    shown = [
        (
            summaries.of_overview(one),
            plots.of_hour(plots.summed(graphs.of(one.crawl).activity.minutes()), now),
        )
        for one in found
    ]
    return page(
        request,
        "crawls.html",
        visitor=visitor,
        crawls=shown,
        after=found[-1].crawl if len(found) == _SHOWN else None,
    )


@router.get("/crawls/{crawl:segment}", name="crawl")
@router.get("/crawls/{crawl:segment}/overview", name="overview")
def overview(request: Request, visitor: Reader, graph: CrawlGraph) -> HTMLResponse:
    """Show how a crawl stands."""
    return page(
        request,
        "overview.html",
        visitor=visitor,
        crawl=graph.crawl,
        tab="overview",
        **overview_of(graph),
    )


def overview_of(graph: ItemGraph) -> dict[str, Any]:
    """Return what the overview shows, for the page and for what is sent as it changes."""
    going_on = graph.activity.going_on()  # or a NotFoundError that names the crawls there are
    now = datetime.now(UTC)
    (found,) = graph.crawls.overview(graph.crawl)
    one = summaries.of_overview(found)
    workers = summaries.workers_of(graph, stopped=3)
    return {
        "one": one,
        "shares": summaries.shares(one["progress"], is_over=one["state"] == CrawlState.FINISHED),
        "notes": [*summaries.older(workers), *summaries.notes(going_on, now)],
        "tasks": one["tasks"],
        "workers": workers,
        "depth": graph.depths.standing(),
        "plot": _plot(graph, now),
        "failures_badge": counts.shown(one["failures"]) if one["failures"] else "",
    }


def _plot(graph: ItemGraph, now: datetime) -> plots.Plot:
    """Return what was done in the last hour, by the minute; of a short time by the second."""
    minutes = plots.summed(graph.activity.minutes())
    since = plots.short_since(minutes)
    seconds = [] if since is None else graph.activity.seconds(since)
    return plots.of_seconds(seconds, now) if seconds else plots.of_hour(minutes, now)
