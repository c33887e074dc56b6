"""Crawls as a whole: their numbers, their workers, operations, and scraped items that were kept."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from starlette.responses import StreamingResponse

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.model import operations
from scrapy_itemgraph.web import models
from scrapy_itemgraph.web.access import Operator, Reader
from scrapy_itemgraph.web.documents import answer, page
from scrapy_itemgraph.web.graphs import AllGraphs, CrawlGraph
from scrapy_itemgraph.web.parameters import AfterNumber, Limit
from scrapy_itemgraph.web.streams import MEDIA_TYPE, Streams

router = APIRouter()
all_crawls = APIRouter()


@all_crawls.get("/crawls", response_model=list[models.Crawl])
def list_crawls(graphs: AllGraphs, _: Reader) -> Response:
    """List the crawls of the database."""
    return answer([{"name": name} for name in graphs.database.crawls()])


@router.get("", response_model=models.Status)
def get_status(graph: CrawlGraph, _: Reader) -> Response:
    """Return a crawl's numbers: items, work of each task, workers, sweeps."""
    return answer(graph.status())


@router.get(
    "/events",
    response_class=StreamingResponse,
    responses={200: {"content": {MEDIA_TYPE: {}}}},
)
async def stream_status(request: Request, graph: CrawlGraph, _: Reader) -> StreamingResponse:
    """Stream a crawl's numbers as server-sent events: at first, and whenever they change."""
    streams: Streams = request.app.state.streams
    name = request.path_params["crawl"]
    return streams.answer(request, ("status", name), graph.status, event="status")


@router.get("/workers", response_model=list[models.Worker])
def list_workers(graph: CrawlGraph, _: Reader) -> Response:
    """List the workers that have not stopped."""
    return answer(graph.status()["workers"])


@router.post("/operations", response_model=list[models.Note])
def apply_operations(graph: CrawlGraph, _: Operator, given: models.Operations) -> Response:
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
    since: Annotated[models.Moment | None, Query()] = None,
    until: Annotated[models.Moment | None, Query()] = None,
    item_class: Annotated[list[str], Query()] = [],  # noqa: B006 - FastAPI copies it
    after: AfterNumber = 0,
    limit: Limit = 100,
) -> Response:
    """List scraped items that were kept, from `since` on and before `until`."""
    rows = graph.journal_after(after, limit, since=since, until=until, item_classes=item_class)
    return answer(page(rows, limit, lambda row: row.number))
