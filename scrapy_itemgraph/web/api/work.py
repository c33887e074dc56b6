"""Work that is outstanding, claimed, delayed or held."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response

from scrapy_itemgraph.model import documents
from scrapy_itemgraph.web import models
from scrapy_itemgraph.web.access import Reader
from scrapy_itemgraph.web.documents import answer
from scrapy_itemgraph.web.graphs import CrawlGraph
from scrapy_itemgraph.web.parameters import After, Limit, OfTask, PathText

if TYPE_CHECKING:
    from scrapy_itemgraph.store.admin.work_pages import WorkPage

router = APIRouter()
of_tags = APIRouter()


class WorkState(StrEnum):
    """What keeps work from being done just now, if anything."""

    READY = "ready"
    DELAYED = "delayed"
    CLAIMED = "claimed"
    HELD = "held"
    GONE = "gone"
    SKIPPED = "skipped"
    STASHED = "stashed"
    LEFT = "left"


AfterWork = Annotated[str, Query(description="what the `Link` of the page before has")]
LISTED: dict[int | str, dict[str, Any]] = {
    200: {
        "headers": {
            "Link": {
                "description": 'where the list goes on, with rel="next"; none: nothing follows',
                "schema": {"type": "string"},
            }
        }
    }
}


@of_tags.get("/tags/{tag:segment}/worklist", response_model=list[models.Work], responses=LISTED)
def worklist_of_tag(
    request: Request,
    graph: CrawlGraph,
    _: Reader,
    tag: PathText,
    task: OfTask = None,
    after: AfterWork = "",
    limit: Limit = 100,
) -> Response:
    """List outstanding work of items with a tag, for tasks that it calls for.

    The same page by page, as `rows` and `next`, is `/work?tag=TAG`.
    """
    return _listed(request, graph.lookup.work(task, tag=tag, after=after or None, limit=limit))


@router.get("/worklist", response_model=list[models.Work], responses=LISTED)
def worklist(
    request: Request,
    graph: CrawlGraph,
    _: Reader,
    task: OfTask = None,
    after: AfterWork = "",
    limit: Limit = 100,
) -> Response:
    """List outstanding work that nobody has claimed, in the order of its turn.

    The same page by page, as `rows` and `next`, is `/work`.
    """
    return _listed(request, graph.lookup.work(task, after=after or None, limit=limit))


def _listed(request: Request, found: WorkPage) -> Response:
    """Return work as a plain list, and in the header where it goes on."""
    rows = documents.of(found.rows)
    listed = answer([{name: row[name] for name in models.Work.model_fields} for row in rows])
    if found.after is not None:
        query = {**request.query_params, "after": found.after}
        listed.headers["Link"] = f'<?{urlencode(query)}>; rel="next"'
    return listed


@router.get("/work", response_model=models.Page[models.WorkRow])
def work(
    graph: CrawlGraph,
    _: Reader,
    task: OfTask = None,
    tag: Annotated[
        str | None,
        Query(min_length=1, description="of items with this tag, for tasks that it calls for"),
    ] = None,
    slot: Annotated[str | None, Query(description="of this slot alone")] = None,
    state: Annotated[WorkState | None, Query()] = None,
    after: After = "",
    limit: Limit = 100,
) -> Response:
    """List work page by page; without a state what nobody has claimed, in the order of its turn."""
    found = graph.lookup.work(
        task, tag=tag, slot=slot, state=state, after=after or None, limit=limit
    )
    return answer({"rows": documents.of(found.rows), "next": found.after})
