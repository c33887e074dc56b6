"""Items: read, added, merged, deleted; their results, and when these expire."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from starlette.responses import StreamingResponse

from scrapy_itemgraph.exceptions import NotFoundError
from scrapy_itemgraph.model import documents, item_names, operations
from scrapy_itemgraph.model.snapshots import PairState
from scrapy_itemgraph.web import bodies, contents, models
from scrapy_itemgraph.web.access import Operator, Reader
from scrapy_itemgraph.web.documents import answer, page
from scrapy_itemgraph.web.graphs import CrawlGraph
from scrapy_itemgraph.web.parameters import REFUSALS, AfterNumber, Limit, OfTag, OfTask, PathText

router = APIRouter()


ItemId = Annotated[
    str,
    Path(
        min_length=1,
        description="an id or an alias, percent-encoded: a slash in it is %2F",
    ),
]
Attempts = Annotated[int, Query(ge=0, le=1000, description="of the last attempts, at most")]


@router.get("/items", response_model=models.Page[models.ListedItem])
def list_items(
    graph: CrawlGraph,
    _: Reader,
    task: Annotated[
        str | None, Query(min_length=1, description="whose tags call for this task")
    ] = None,
    tag: OfTag = None,
    state: Annotated[
        PairState | None, Query(description="that of `task`, or of any task of theirs")
    ] = None,
    since: Annotated[
        bodies.Moment | None,
        Query(description="made or changed, or with a task that completed, from then on"),
    ] = None,
    after: AfterNumber = 0,
    limit: Limit = 100,
) -> Response:
    """List items, in the order in which they were made.

    By `state` and `since` 20,000 items are looked at for a page: it may have fewer rows than
    `limit`, or none, and still a `next`.
    """
    found = graph.lookup.items(
        task=task, tag=tag, state=state, since=since, after=after, limit=limit
    )
    following = None if found.after is None else str(found.after)
    return answer({"rows": documents.of(found.rows), "next": following})


@router.get("/done", response_model=models.Page[models.Done])
def list_done(
    graph: CrawlGraph,
    _: Reader,
    task: OfTask = None,
    since: Annotated[bodies.Moment | None, Query(description="from then on")] = None,
    after: AfterNumber = 0,
    limit: Limit = 100,
) -> Response:
    """List what was done last: pages and tasks of items, with how many items each scraped.

    It is looked for among the last 50,000 attempts of the database.
    """
    rows = graph.lookup.done(task, since=since, before=after or None, limit=limit)
    return answer(page(rows, limit, lambda row: row.number))


@router.post("/items/add", status_code=201, response_model=models.Added, responses={200: {}})
def add_item(graph: CrawlGraph, _: Operator, given: bodies.NewItem) -> Response:
    """Add an item, unless its id is taken: then nothing changes, and the status is 200."""
    drawn: dict[str, Any] = {} if given.id is None else {"id": given.id}
    created = operations.CreateItem(
        **drawn,
        tags=given.tags,
        data=given.data,
        prefix=given.prefix,
        aliases=given.aliases,
        nice=given.nice,
        not_before=given.not_before,
    )
    added = graph.add(created)
    return answer(added, 201 if added["created"] else 200)


@router.get("/items/{item:segment}", response_model=models.Item)
def get_item(graph: CrawlGraph, _: Reader, item: ItemId, attempts: Attempts = 10) -> Response:
    """Show an item: names, tags, data, results, and last attempts with what they logged."""
    return answer(graph.show(item, attempts=attempts))


@router.post("/items/{item:segment}", response_model=models.Merged, responses={201: {}})
def merge_item(graph: CrawlGraph, _: Operator, item: ItemId, given: bodies.MergedItem) -> Response:
    """Merge data, key by key, and tags into an item; it is made if there is none."""
    is_new = graph.merge(item, data=given.data, tags=given.tags)
    return answer({**graph.show(item), "created": is_new}, 201 if is_new else 200)


@router.delete("/items/{item:segment}", response_model=models.Deleted)
def delete_item(
    graph: CrawlGraph,
    _: Operator,
    item: ItemId,
    keep_name: Annotated[bool, Query(description="leave its names taken")] = False,
) -> Response:
    """Delete an item, its results and its work."""
    deleted = graph.delete(item, keep_name=keep_name)
    return answer({"deleted": deleted.text, "names_kept": keep_name})


@router.get("/items/{item:segment}/metadata", response_model=dict[str, Any])
def get_metadata(
    graph: CrawlGraph,
    _: Reader,
    item: ItemId,
    operations: Annotated[list[str], Query(description="tasks; left out: all")] = [],  # noqa: B006
) -> Response:
    """Return the metadata of an item's results, by task; what never ran has none."""
    results = {one.task: one for one in graph.results(item)}
    for task in operations:
        if task not in results:
            listed = ", ".join(results) or "none"
            raise NotFoundError(f"the item {item!r} has no task {task!r}; it has {listed}")
    return answer(
        {
            task: one.metadata
            for task, one in results.items()
            if one.completed_at is not None and (not operations or task in operations)
        }
    )


@router.get("/items/{item:segment}/operations", response_model=list[models.Result])
def get_results(graph: CrawlGraph, _: Reader, item: ItemId) -> Response:
    """List the tasks that apply to an item, with the state, expiry and success of each."""
    return answer(graph.results(item))


@router.post(
    "/items/{item:segment}/operations/{task:segment}/expire",
    response_model=list[models.Result],
)
def expire_result(graph: CrawlGraph, _: Operator, item: ItemId, task: PathText) -> Response:
    """Make a task's result stale, so that it runs again, also when a failure holds it back."""
    return answer(graph.expire(item, task))


@router.post("/items/{item:segment}/expire", response_model=list[models.Result])
def expire_results(graph: CrawlGraph, _: Operator, item: ItemId) -> Response:
    """Make all results of an item stale."""
    return answer(graph.expire(item))


@router.put("/items/{item:segment}/ttl", response_model=list[models.Result])
def set_ttl(graph: CrawlGraph, _: Operator, item: ItemId, given: bodies.NewTTL) -> Response:
    """Set when results expire, counted from when they were made."""
    return answer(graph.set_ttl(item, given.ttl, given.task))


@router.get("/items/{item:segment}/attempts", response_model=list[models.Attempt])
def get_attempts(graph: CrawlGraph, _: Reader, item: ItemId, limit: Limit = 10) -> Response:
    """List the last attempts at an item's tasks, the latest first."""
    return answer(graph.lookup.attempts(item, limit))


@router.get("/items/{item:segment}/neighbours", response_model=models.Neighbours)
def get_neighbours(graph: CrawlGraph, _: Reader, item: ItemId, limit: Limit = 50) -> Response:
    """Return which item made an item, and which items its last executions made."""
    return answer(graph.lookup.neighbours(item, limit))


@router.put("/items/{item:segment}/nice", response_model=models.Item)
def set_nice(graph: CrawlGraph, _: Operator, item: ItemId, given: bodies.NewNice) -> Response:
    """Let an item's work have its turn earlier, which a lower number does, or later."""
    graph.set_nice(item, given.nice)
    return answer(graph.show(item))


@router.get("/items/{item:segment}/blobs", response_model=list[models.Blob])
def list_blobs(graph: CrawlGraph, _: Reader, item: ItemId) -> Response:
    """List an item's blobs: its binary data, by name."""
    return answer(graph.blobs.list(item))


@router.get(
    "/items/{item:segment}/blobs/{blob:segment}",
    response_class=StreamingResponse,
    responses={
        200: {"content": {"*/*": {}}},
        206: {"description": "The part that `Range` asks for", "content": {"*/*": {}}},
        416: {**REFUSALS[404], "description": "No byte is in the range that is asked for"},
    },
)
def get_blob(
    request: Request,
    graph: CrawlGraph,
    _: Reader,
    item: ItemId,
    blob: PathText,
) -> Response:
    """Return what is in a blob; all but pictures is for saving, and nothing of it runs.

    `Range: bytes=FIRST-LAST` asks for a part, and `If-Range` with the `ETag` of an earlier answer
    for all of it where it is another one by now. Several ranges are answered with the whole.
    """
    return contents.answer(request, graph.blobs.open(item, blob))


@router.get("/items/{item:segment}/explain", response_model=list[models.Explanation])
def explain(
    graph: CrawlGraph, _: Reader, item: ItemId, task: Annotated[str | None, Query()] = None
) -> Response:
    """Say why an item's tasks run next, or do not."""
    explained = graph.explain(item, task)
    found = graph.get(item)
    url, method = item_names.page_of(None if found is None else found.data)
    known = {"item": item if found is None else found.id, "url": url, "method": method}
    return answer([{**known, **asdict(one)} for one in explained])
