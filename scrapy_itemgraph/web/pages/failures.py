"""Open failures, grouped by what is the same, their handling, and its undoing."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import HTMLResponse
from starlette.responses import Response

from scrapy_itemgraph.exceptions import NotFoundError, OperationError
from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.model import counts, documents, moments, next_commands
from scrapy_itemgraph.model.crawl_states import State
from scrapy_itemgraph.model.failure_filters import FailureFilters
from scrapy_itemgraph.store import open_failures
from scrapy_itemgraph.store.admin import failure_groups
from scrapy_itemgraph.web.access import Operator, Reader
from scrapy_itemgraph.web.graphs import CrawlGraph
from scrapy_itemgraph.web.pages import (
    failure_sparks,
    links,
    messages,
    periods,
    rendering,
    tracebacks,
)
from scrapy_itemgraph.web.pages.rendering import page
from scrapy_itemgraph.web.pages.routes import Fields, Form, PageRoute, back_to
from scrapy_itemgraph.web.pages.typed_commands import Simulating

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy_itemgraph.store.admin.failure_groups import FailureGroup
    from scrapy_itemgraph.store.failures import OpenFailure
    from scrapy_itemgraph.store.open_failures import FailureDetails

router = APIRouter(route_class=PageRoute)

_GROUPS = 100
_DIGITS = 18  # of a failure's number at most
_MEMBERS = 100  # of a group that a page lists
_LONGEST = 200  # characters of a text that is looked for


@dataclass(frozen=True, slots=True)
class Shown:
    """A group as its card shows it."""

    key: str
    number: int | None
    task: str
    is_refusal: bool
    count: int
    times: int  # with those that were handled
    first_seen: datetime
    last_at: datetime
    example: OpenFailure
    command: str | None  # which simulates the example
    spark: failure_sparks.Spark | None
    by_run: failure_sparks.Spark | None

    def __getattr__(self, name: str) -> str:
        """Return a text of the example's error: type, message, place, spider, traceback, snippet.

        What it lacks is empty.
        """
        return str(self.example.error.get(name) or "")


def _command(simulating: Simulating, example: OpenFailure, written: str) -> str | None:
    """Return what simulates an example; None for a page that nothing but an inner name tells."""
    if example.is_page and written == example.item:
        return None
    spider = str(example.error.get("spider") or "")
    return simulating.typed(spider, example.task, written, is_page=example.is_page)


def _shown(group: FailureGroup, command: str | None, sparks: failure_sparks.Sparks) -> Shown:
    return Shown(
        group.group.hex,
        group.number,
        group.task,
        group.is_refusal,
        counts.Estimate(group.count) if group.is_estimated else group.count,
        group.times,
        group.first_seen,
        group.last_at,
        group.example,
        command,
        sparks.of.get(group.group),
        failure_sparks.by_run(group.runs),
    )


@dataclass(frozen=True, slots=True)
class Filters:
    """What the address of a list asks for; what is empty leaves all."""

    task: str = ""
    type: Annotated[str, Query(max_length=_LONGEST)] = ""
    text: Annotated[str, Query(max_length=_LONGEST)] = ""
    since: str = ""

    def of(self, graph: ItemGraph) -> FailureFilters:
        """Return which failures that are."""
        return {
            "task": self.task or None,
            "type": self.type or None,
            "text": self.text or None,
            "occurred_since": periods.moment(graph, self.since),
        }


Asked = Annotated[Filters, Depends()]
Sort = Literal["last", "first", "count", "task", "type"]
Order = Literal["newest", "oldest"]
After = Annotated[int, Query(ge=0, lt=2**63)]
Number = Annotated[int, Path(ge=1, lt=2**63)]


@router.get("/crawls/{crawl:segment}/failures", name="failures")
def failures(
    request: Request, visitor: Reader, graph: CrawlGraph, asked: Asked, sort: Sort = "last"
) -> HTMLResponse:
    """Show open failures in groups, the latest first."""
    task_names = list(graph.tasks.tags())  # or a NotFoundError that names the crawls there are
    which = asked.of(graph)
    groups = graph.failures.groups(_GROUPS, sort=sort, **which)
    examples = [one.example for one in groups]
    simulating = Simulating.of(graph)
    commands = [
        _command(simulating, example, written)
        for example, written in zip(examples, graph.lookup.written(examples), strict=True)
    ]
    times = graph.failures.times([one.group for one in groups])
    sparks = failure_sparks.drawn(times, graph.database.now(), failure_groups.MOST_TIMES)
    return page(
        request,
        "failures.html",
        visitor=visitor,
        crawl=graph.crawl,
        tab="failures",
        task_names=task_names,
        filters=asdict(asked),
        moments=periods.LABELS,
        sort=sort,
        cost=graph.costs.of_handle(**which).words if any(which.values()) else "",
        groups=[_shown(one, typed, sparks) for one, typed in zip(groups, commands, strict=True)],
        axis=sparks.axis,
        stamp=int(graph.failures.open()),
        is_cut=len(groups) == _GROUPS,
    )


@router.get("/crawls/{crawl:segment}/failures/list", name="failure list")
def listed(
    request: Request,
    visitor: Reader,
    graph: CrawlGraph,
    asked: Asked,
    group: str = "",
    sort: Order = "newest",
    after: After = 0,
) -> HTMLResponse:
    """List open failures one by one, to handle some of them."""
    which = asked.of(graph)
    if group:
        which["group"] = _uuid(group)
    found = graph.failures.page(_MEMBERS, after=after, newest_first=sort == "newest", **which)
    return page(
        request,
        "failure-list.html",
        visitor=visitor,
        crawl=graph.crawl,
        tab="failures",
        task_names=list(graph.tasks.tags()),
        filters={**asdict(asked), "group": group},
        moments=periods.LABELS,
        sort=sort,
        found=found,
        looked_at=open_failures.LOOKED_AT,
    )


@router.get("/crawls/{crawl:segment}/failures/{number:int}", name="failure")
def one(request: Request, visitor: Reader, graph: CrawlGraph, number: Number) -> HTMLResponse:
    """Show one failure, open or handled, with all that is known of it."""
    found = graph.failures.get(number)
    error = found.failure.error
    return page(
        request,
        "failure.html",
        visitor=visitor,
        crawl=graph.crawl,
        tab="failures",
        found=found,
        error=rendering.error(error),
        traceback=tracebacks.of_error(error),
        older=_beside(graph, found, newest_first=True),
        newer=_beside(graph, found, newest_first=False),
    )


def _beside(graph: ItemGraph, found: FailureDetails, *, newest_first: bool) -> int | None:
    """Return the number of the next open failure that is like one, older or newer; None: none."""
    number = found.failure.id
    rows = graph.failures.page(1, after=number, newest_first=newest_first, group=found.group).rows
    return rows[0].id if rows else None


@router.get("/crawls/{crawl:segment}/failures/group", name="failure group")
def members(
    request: Request, visitor: Reader, graph: CrawlGraph, group: str, after: int = 0
) -> HTMLResponse:
    """List the failures of a group one by one, the oldest first."""
    found = graph.failures.list(group=_uuid(group), after=after, limit=_MEMBERS)
    return page(
        request,
        "failure-group.html",
        visitor=visitor,
        crawl=graph.crawl,
        tab="failures",
        group=group,
        failures=found,
        after=found[-1].id if len(found) == _MEMBERS else None,
    )


@router.post("/crawls/{crawl:segment}/handle", name="handle")
def handle(request: Request, _: Operator, graph: CrawlGraph, form: Fields) -> Response:
    """Handle failures: those that are ticked, a group of them, or those that a list shows."""
    retry = bool(form["retry"])
    which = _chosen(graph, form)
    path = back_to(request, links.of_crawl(graph.crawl, "failures"))
    since = graph.database.now()
    try:
        number = graph.failures.handle(retry=retry, **which)
    except NotFoundError:
        number = 0
    if not number:
        text = "There was nothing left to handle: somebody was faster."
        return messages.say(request, path, text, kind="warn")
    what = f"{counts.many(number, 'failure')} {'is' if number == 1 else 'are'}"
    they = "it" if number == 1 else "they"
    stay = "it stays held until it is" if number == 1 else "they stay held until they are"
    then = f"{they} may run again" if retry else f"{stay} expired"
    root = request.scope.get("root_path", "").rstrip("/")
    return messages.say(
        request,
        path,
        f"{what} handled: {then}.{_next(graph) if retry else ''}",
        undo=root + links.of_crawl(graph.crawl, "unhandle"),
        undo_of=json.dumps({"since": since, **which}, default=documents.plain),
    )


def _next(graph: ItemGraph) -> str:
    """Return what a person types so that what was freed runs, unless it runs by itself."""
    start = graph.crawls.next_start()
    if start is None or start.is_running:
        return ""
    if start.state is not None:
        is_awake = start.state == State.ACTIVE and not start.is_new_run
        return f" Run {start.run} goes on: {start.cost} to fetch." if is_awake else ""
    settings = [next_commands.CONTINUES] if start.is_new_run and start.has_no_ttl else []
    typed = next_commands.crawl(start.spider, start.arguments, *settings)
    return f" Next: {typed} ({start.cost} to fetch)"


@router.post("/crawls/{crawl:segment}/unhandle", name="unhandle")
def unhandle(request: Request, _: Operator, graph: CrawlGraph, form: Fields) -> Response:
    """Open failures again that were handled, as far as nothing of them ran since."""
    try:
        given = json.loads(form["undo"])
        since = moments.check(datetime.fromisoformat(given.pop("since")), "since")
        which = _read(given)
    except (ValueError, TypeError, KeyError, AttributeError):
        raise OperationError("this cannot be undone: the form does not say what") from None
    number = graph.failures.unhandle(since, **which)
    path = back_to(request, links.of_crawl(graph.crawl, "failures"))
    if not number:
        text = "Nothing was undone: what was handled has run since, or runs."
        return messages.say(request, path, text, kind="warn")
    what = f"{counts.many(number, 'failure')} {'is' if number == 1 else 'are'}"
    return messages.say(request, path, f"{what} open again.")


def _chosen(graph: ItemGraph, form: Form) -> FailureFilters:
    """Return which failures a form means: those that are ticked, else by its other fields."""
    if numbers := form.all("failure"):
        return {"failures": [_number(one) for one in numbers]}
    if form["group"]:
        return {"group": _uuid(form["group"])}
    asked = Filters(form.exact("task"), form["type"], form["text"], form["since"])
    which = asked.of(graph)
    if not any(which.values()):
        raise OperationError("say which failures are meant: tick some of them")
    if max(len(asked.type), len(asked.text)) > _LONGEST:
        raise OperationError(f"a text of more than {_LONGEST} characters is not looked for")
    return which


def _read(given: Mapping[str, Any]) -> FailureFilters:
    """Return which failures the form for undoing means; raise a ValueError or TypeError."""
    since = given.get("occurred_since")
    numbers = given.get("failures")
    which: FailureFilters = {
        "failures": None if numbers is None else [_number(str(one)) for one in numbers],
        "group": UUID(given["group"]) if given.get("group") else None,
        "occurred_since": moments.check(datetime.fromisoformat(since), "since") if since else None,
        "task": str(given["task"]) if given.get("task") else None,
        "type": str(given["type"]) if given.get("type") else None,
        "text": str(given["text"]) if given.get("text") else None,
    }
    if not any(which.values()):
        raise ValueError("all")
    return which


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > _DIGITS:
        raise OperationError("this is no failure's number")
    return int(text)


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise NotFoundError("there is no such group of failures") from None
