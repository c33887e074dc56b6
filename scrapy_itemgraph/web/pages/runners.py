"""Runners: the daemons that run the crawls of the queue, their places and their hosts."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from scrapy_itemgraph.web.access import Reader
from scrapy_itemgraph.web.graphs import AllGraphs
from scrapy_itemgraph.web.pages.rendering import page
from scrapy_itemgraph.web.pages.routes import PageRoute

router = APIRouter(route_class=PageRoute)


@router.get("/runners", name="runners")
def runners(request: Request, visitor: Reader, graphs: AllGraphs) -> HTMLResponse:
    """Show the runners, those that live first."""
    found = sorted(graphs.served.runners.list(), key=lambda one: (not one.lives, one.name))
    return page(
        request,
        "runners.html",
        visitor=visitor,
        tab="runners",
        runners=found,
        places=graphs.served.runners.all_places(),
    )
