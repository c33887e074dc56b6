"""Crawls as a whole: their numbers, their workers, operations, and scraped items that were kept."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from starlette.responses import StreamingResponse

from scrapy_itemgraph.exceptions import NotFoundError, OperationError
from scrapy_itemgraph.model import operations
from scrapy_itemgraph.web import bodies, models
from scrapy_itemgraph.web.access import Operator, Reader
from scrapy_itemgraph.web.documents import answer, page
from scrapy_itemgraph.web.graphs import AllGraphs, CrawlGraph
from scrapy_itemgraph.web.parameters import MOST, After, AfterNumber, Limit, Period
from scrapy_itemgraph.web.searches import Searches
from scrapy_itemgraph.web.streams import MEDIA_TYPE, Streams

MOST_CRAWLS = Query(ge=1, le=100, description="rows at most")


class SearchKind(StrEnum):
    """What a search looks for."""

    PREFIX = "prefix"
    PART = "part"
    PATH = "path"


router = APIRouter()
all_crawls = APIRouter()


@all_crawls.get("/crawls", response_model=models.Page[models.Crawl])
def list_crawls(
    graphs: AllGraphs, _: Reader, after: After = "", limit: Annotated[int, MOST_CRAWLS] = 20
) -> Response:
    """List the crawls of the database by name, and how each stands."""
    rows = graphs.served.crawls.overview(after=after, limit=limit)
    return answer(page(rows, limit, lambda row: row.crawl))


@all_crawls.get("/requests", response_model=list[models.LimitMinute])
def list_requests(graphs: AllGraphs, _: Reader, minutes: Period = 60) -> Response:
    """List how many requests started under each limit in each minute, of all crawls."""
    return answer(graphs.served.activity.requests(timedelta(minutes=minutes)))


@router.get("", response_model=models.Status)
def get_status(graph: CrawlGraph, _: Reader) -> Response:
    """Return a crawl's numbers: items, work of each task, workers, sweeps."""
    return answer(graph.status())


@router.get(
    "/events",
    response_class=StreamingResponse,
    responses={200: {"content": {MEDIA_TYPE: {}}}},
)
async def stream_status(request: Request, graph: CrawlGraph, visitor: Reader) -> StreamingResponse:
    """Stream a crawl's numbers as server-sent events: at first, and whenever they change."""
    streams: Streams = request.app.state.streams
    name = request.path_params["crawl"]
    return streams.answer(request, visitor, ("status", name), graph.status, event="status")


@router.get("/overview", response_model=models.Crawl)
def get_overview(graph: CrawlGraph, _: Reader) -> Response:
    """Return how a crawl stands in a few numbers."""
    found = graph.crawls.overview(graph.crawl)
    if not found:
        raise NotFoundError(f"there is no crawl {graph.crawl!r}")
    return answer(found[0])


@router.get("/runs", response_model=list[models.Run])
def list_runs(graph: CrawlGraph, _: Reader, limit: Limit = 100) -> Response:
    """List the crawl's runs, the newest first."""
    return answer(graph.crawls.runs(limit=limit))


@router.get("/workers", response_model=list[models.WorkerState])
def list_workers(
    graph: CrawlGraph, _: Reader, stopped: Annotated[int, Query(ge=0, le=MOST)] = 20
) -> Response:
    """List the workers that have not stopped, and then the last that have."""
    return answer(graph.activity.workers(stopped=stopped))


@router.get("/minutes", response_model=list[models.TaskMinute])
def list_minutes(graph: CrawlGraph, _: Reader, minutes: Period = 60) -> Response:
    """List what executions of each task did in each minute up to now."""
    return answer(graph.activity.minutes(timedelta(minutes=minutes)))


@router.get("/totals", response_model=list[models.TaskTotals])
def list_totals(graph: CrawlGraph, _: Reader) -> Response:
    """List all that was done of each task since the crawl began, or was restarted."""
    return answer(graph.activity.totals())


@router.get("/search", response_model=models.Found)
async def search(
    request: Request,
    graph: CrawlGraph,
    visitor: Reader,
    q: Annotated[str, Query(min_length=1, max_length=8192)],
    by: Annotated[SearchKind, Query()] = SearchKind.PART,
    limit: Limit = 50,
) -> Response:
    """Find items among the newest 100,000, by a part of a name or URL, or a JSON path."""
    searches: Searches = request.app.state.searches
    found = await searches.run(visitor, partial(graph.lookup.search, q, by, limit))
    return answer(found)


@router.post("/operations", response_model=list[models.Note])
def apply_operations(graph: CrawlGraph, _: Operator, given: bodies.Operations) -> Response:
    """Apply operations in one transaction; an error names the one that cannot be carried out.

    A crawl that does not exist yet is made.
    """
    names = [f"operation {number}" for number in range(1, len(given.operations) + 1)]
    read = [_read(one, name) for one, name in zip(given.operations, names, strict=True)]
    notes = graph.apply(read, names=names)
    return answer(
        [{"operation": one.operation, "label": one.label, "text": one.text} for one in notes]
    )


def _read(operation: dict[str, Any], name: str) -> operations.Operation:
    try:
        return operations.from_json(operation)
    except OperationError as error:
        raise type(error)(f"{name}: {error}") from None


@router.get("/journal", response_model=models.Page[models.Kept])
def read_journal(
    graph: CrawlGraph,
    _: Reader,
    since: Annotated[bodies.Moment | None, Query()] = None,
    until: Annotated[bodies.Moment | None, Query()] = None,
    item_class: Annotated[list[str], Query()] = [],  # noqa: B006 - FastAPI copies it
    after: AfterNumber = 0,
    limit: Limit = 100,
) -> Response:
    """List scraped items that were kept, from `since` on and before `until`."""
    rows = graph.journal.page(after, limit, since=since, until=until, item_classes=item_class)
    return answer(page(rows, limit, lambda row: row.number))
