"""Open failures, grouped by what is the same, their handling, and its undoing."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from starlette.responses import Response

from scrapy_itemgraph.exceptions import NotFoundError, OperationError
from scrapy_itemgraph.model import counts, moments
from scrapy_itemgraph.web.access import Operator, Reader
from scrapy_itemgraph.web.graphs import CrawlGraph
from scrapy_itemgraph.web.pages import links, messages
from scrapy_itemgraph.web.pages.rendering import many, page
from scrapy_itemgraph.web.pages.routes import Fields, PageRoute, back_to

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy_itemgraph.store.admin.failure_groups import FailureGroup
    from scrapy_itemgraph.store.failures import OpenFailure

router = APIRouter(route_class=PageRoute)

_GROUPS = 100
_DIGITS = 18  # of a failure's number at most
_MEMBERS = 100  # of a group that a page lists


@dataclass(frozen=True, slots=True)
class Shown:
    """A group as its card shows it."""

    key: str
    task: str
    is_refusal: bool
    count: int
    first_at: datetime
    last_at: datetime
    example: OpenFailure

    def __getattr__(self, name: str) -> str:
        """Return a text of the example's error: type, message, place, spider, traceback, snippet.

        What it lacks is empty.
        """
        return str(self.example.error.get(name) or "")


def _shown(group: FailureGroup) -> Shown:
    return Shown(
        group.group.hex,
        group.task,
        group.is_refusal,
        counts.Estimate(group.count) if group.is_estimated else group.count,
        group.first_at,
        group.last_at,
        group.example,
    )


@router.get("/crawls/{crawl:segment}/failures", name="failures")
def failures(request: Request, visitor: Reader, graph: CrawlGraph, task: str = "") -> HTMLResponse:
    """Show open failures in groups, the latest first."""
    tasks = graph.tasks.list()
    groups = graph.failures.groups(_GROUPS)
    return page(
        request,
        "failures.html",
        visitor=visitor,
        crawl=graph.crawl,
        tab="failures",
        task_names=[one.name for one in tasks],
        filters={"task": task},
        groups=[_shown(one) for one in groups if task in {"", one.task}],
        stamp=int(counts.total(one.failures + one.refusals for one in tasks)),
        is_cut=len(groups) == _GROUPS,
    )


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
    """Handle a failure, a group of them, or all of a task."""
    retry = bool(form["retry"])
    which = {name: form.exact(name) for name in ("failure", "group", "task") if form[name]}
    path = back_to(request, links.of_crawl(graph.crawl, "failures"))
    since = graph.database.now()
    try:
        number = graph.failures.handle(**_which(which), retry=retry)
    except NotFoundError:
        number = 0
    if not number:
        text = "There was nothing left to handle: somebody was faster."
        return messages.say(request, path, text, kind="warn")
    what = f"{many(number, 'failure')} {'is' if number == 1 else 'are'}"
    then = "what it held may run again" if retry else "it stays held until it is expired"
    root = request.scope.get("root_path", "").rstrip("/")
    return messages.say(
        request,
        path,
        f"{what} handled: {then}.",
        undo=root + links.of_crawl(graph.crawl, "unhandle"),
        undo_of=json.dumps({"since": since.isoformat(), **which}),
    )


@router.post("/crawls/{crawl:segment}/unhandle", name="unhandle")
def unhandle(request: Request, _: Operator, graph: CrawlGraph, form: Fields) -> Response:
    """Open failures again that were handled, as far as nothing of them ran since."""
    try:
        given = json.loads(form["undo"])
        since = moments.check(datetime.fromisoformat(given.pop("since")), "since")
        which = _which(given)
    except (ValueError, TypeError, KeyError, AttributeError):
        raise OperationError("this cannot be undone: the form does not say what") from None
    number = graph.failures.unhandle(since, **which)
    path = back_to(request, links.of_crawl(graph.crawl, "failures"))
    if not number:
        text = "Nothing was undone: what was handled has run since, or runs."
        return messages.say(request, path, text, kind="warn")
    what = f"{many(number, 'failure')} {'is' if number == 1 else 'are'}"
    return messages.say(request, path, f"{what} open again.")


def _which(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `graph.failures.handle` is told of one failure, a group, or a task."""
    if failure := given.get("failure"):
        if not str(failure).isdecimal() or len(str(failure)) > _DIGITS:
            raise OperationError("this is no failure's number")
        return {"failure": int(failure)}
    if group := given.get("group"):
        return {"group": _uuid(str(group))}
    if task := given.get("task"):
        return {"task": str(task)}
    raise OperationError("say which failure, group or task is meant")


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise NotFoundError("there is no such group of failures") from None
