"""Jobs: processes of crawls of the queue, how they ended, and what they wrote."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import HTMLResponse

from scrapy_itemgraph.web import bodies
from scrapy_itemgraph.web.access import Reader
from scrapy_itemgraph.web.graphs import AllGraphs
from scrapy_itemgraph.web.pages.rendering import page
from scrapy_itemgraph.web.pages.routes import PageRoute
from scrapy_itemgraph.web.parameters import AfterNumber

router = APIRouter(route_class=PageRoute)

_SHOWN = 50

JobNumber = Annotated[int, Path(ge=1, lt=bodies.INT64)]


@router.get("/jobs", name="jobs")
def jobs(
    request: Request,
    visitor: Reader,
    graphs: AllGraphs,
    *,
    crawl: str = "",
    is_open: Annotated[bool, Query(alias="open")] = False,
    after: AfterNumber = 0,
) -> HTMLResponse:
    """Show jobs, the newest first."""
    found = graphs.served.jobs.list(
        crawl=crawl or None, is_open=is_open, before=after or None, limit=_SHOWN
    )
    return page(
        request,
        "jobs.html",
        visitor=visitor,
        tab="jobs",
        jobs=found,
        filters={"crawl": crawl, "open": is_open},
        after=found[-1].id if len(found) == _SHOWN else None,
    )


@router.get("/jobs/{number}", name="job")
def job(request: Request, visitor: Reader, graphs: AllGraphs, number: JobNumber) -> HTMLResponse:
    """Show a job, and what its process wrote last."""
    found = graphs.served.jobs.get(number)
    log = graphs.served.jobs.log(number)
    return page(request, "job.html", visitor=visitor, tab="jobs", found=found, log=log)
