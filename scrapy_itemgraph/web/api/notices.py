"""Notices: what people are told of crawls and runners, and whether it arrives."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.web import models, queue_models
from scrapy_itemgraph.web.access import Operator, Reader
from scrapy_itemgraph.web.api.jobs import OfCrawl
from scrapy_itemgraph.web.documents import answer, page
from scrapy_itemgraph.web.graphs import AllGraphs
from scrapy_itemgraph.web.parameters import AfterNumber, Limit

router = APIRouter()


@router.get("/notices", response_model=models.Page[queue_models.Notice])
def list_notices(
    graphs: AllGraphs,
    _: Reader,
    crawl: OfCrawl = None,
    after: AfterNumber = 0,
    limit: Limit = 100,
) -> Response:
    """List notices, the newest first, and whether each has arrived."""
    found = graphs.served.notices.list(crawl=crawl, before=after or None, limit=limit)
    return answer(page(found, limit, lambda one: one.id))


@router.post("/notices/test", response_model=list[queue_models.NoticeAnswer])
def test_notices(request: Request, graphs: AllGraphs, visitor: Operator) -> Response:
    """Send a test by each channel of the server's project; say what each answered in a minute."""
    channels = request.app.state.channels
    if not channels:
        raise OperationError(
            "this server tells nobody anything: its project's settings have no "
            "ITEMGRAPH_NOTIFY_URLS and no ITEMGRAPH_NOTIFY_FUNCTION"
        )
    return answer(graphs.served.notices.test(channels, by=visitor.by))
