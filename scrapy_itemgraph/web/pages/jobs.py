"""Jobs: processes of crawls of the queue, how they ended, and what they wrote."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import HTMLResponse
from starlette.responses import Response

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.web import bodies
from scrapy_itemgraph.web.access import Operator, Reader, Steerer
from scrapy_itemgraph.web.graphs import AllGraphs
from scrapy_itemgraph.web.pages import messages
from scrapy_itemgraph.web.pages.rendering import page, short
from scrapy_itemgraph.web.pages.routes import Fields, Form, PageRoute, back_to
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


@router.post("/jobs/{number}/cancel", name="cancel-job")
def cancel(
    request: Request, visitor: Steerer, graphs: AllGraphs, number: JobNumber, _form: Fields
) -> Response:
    """Cancel a job that waits, or have its process end in order."""
    crawl = graphs.served.jobs.cancel(number, by=visitor.by)
    text = f"Job {number} ends. {short(crawl)} stays active: pause it to keep it from going on."
    return messages.say(request, back_to(request, f"/jobs/{number}"), text)


@router.post("/jobs/{number}/retry", name="retry-job")
def retry(
    request: Request, visitor: Steerer, graphs: AllGraphs, number: JobNumber, _form: Fields
) -> Response:
    """Have another process do what a job did."""
    made, crawl = graphs.served.jobs.retry(number, by=visitor.by)
    root: str = request.scope.get("root_path", "").rstrip("/")
    return messages.say(request, f"{root}/jobs/{made}", f"Job {made} of {short(crawl)} waits.")


@router.post("/jobs/{number}/reclaim", name="reclaim-job")
def reclaim(
    request: Request, visitor: Operator, graphs: AllGraphs, number: JobNumber, form: Fields
) -> Response:
    """End a job whose process nobody sees."""
    graphs.served.jobs.reclaim(number, _why(form), by=visitor.by)
    text = f"Job {number} is over, and what it had is free."
    return messages.say(request, back_to(request, f"/jobs/{number}"), text)


def _why(form: Form) -> str:
    if not form["reason"]:
        raise OperationError("say why it is taken away")
    return form["reason"]
