"""Notices: what people were told of crawls and runners, and whether it arrived."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from starlette.responses import Response

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.model.notices import Arrival
from scrapy_itemgraph.web.access import Operator, Reader
from scrapy_itemgraph.web.graphs import AllGraphs
from scrapy_itemgraph.web.pages import messages
from scrapy_itemgraph.web.pages.rendering import page, plain
from scrapy_itemgraph.web.pages.routes import Fields, PageRoute, back_to
from scrapy_itemgraph.web.parameters import AfterNumber

router = APIRouter(route_class=PageRoute)

_SHOWN = 50


@router.get("/notices", name="notices")
def notices(
    request: Request, visitor: Reader, graphs: AllGraphs, crawl: str = "", after: AfterNumber = 0
) -> HTMLResponse:
    """Show notices, the newest first."""
    found = graphs.served.notices.list(crawl=crawl or None, before=after or None, limit=_SHOWN)
    channels = request.app.state.channels
    return page(
        request,
        "notices.html",
        visitor=visitor,
        tab="notices",
        notices=found,
        of_crawl=crawl,
        channels=[one.name for one in channels.channels] if channels else [],
        after=found[-1].id if len(found) == _SHOWN else None,
    )


@router.post("/notices/test", name="test-notices")
def test(request: Request, visitor: Operator, graphs: AllGraphs, _form: Fields) -> Response:
    """Send a test by each channel of the server's project, and say what it answered."""
    channels = request.app.state.channels
    if not channels:
        raise OperationError("this server tells nobody anything: its project names no channel")
    answers = graphs.served.notices.test(channels, by=visitor.by)
    said = [f"{one.channel}: {one.arrival}, {_last_line(one.said)}" for one in answers]
    has_all = all(one.arrival is Arrival.SENT for one in answers)
    kind = "good" if has_all else "bad"
    return messages.say(request, back_to(request, "/notices"), "; ".join(said), kind=kind)


def _last_line(text: str) -> str:
    return plain((text.strip().splitlines() or ["it said nothing"])[-1])
