"""Open failures, grouped by what is the same, and their handling."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from starlette.responses import Response

from scrapy_itemgraph.exceptions import NotFoundError, OperationError
from scrapy_itemgraph.web.access import Operator, Reader
from scrapy_itemgraph.web.graphs import CrawlGraph
from scrapy_itemgraph.web.pages import links, messages
from scrapy_itemgraph.web.pages.rendering import page
from scrapy_itemgraph.web.pages.routes import Fields, PageRoute, back_to

if TYPE_CHECKING:
    from datetime import datetime

    from scrapy_itemgraph.graph import ItemGraph
    from scrapy_itemgraph.store.failures import OpenFailure

router = APIRouter(route_class=PageRoute)

_MEMBERS = 50  # of a group that are listed


@dataclass(slots=True)
class Member:
    """One failure of a group."""

    id: int
    item: str
    message: str
    occurred_at: datetime


@dataclass(slots=True, kw_only=True)
class Group:
    """Failures that are alike, with an example."""

    key: str
    task: str
    is_refusal: bool
    type: str
    message: str
    place: str
    count: int
    first_at: datetime
    last_at: datetime
    example: OpenFailure
    spider: str
    traceback: str
    snippet: str
    version: str = ""
    snippet_note: str = ""
    members: list[Member] = field(default_factory=list)


@router.get("/crawls/{crawl:segment}/failures", name="failures")
def failures(request: Request, visitor: Reader, graph: CrawlGraph, task: str = "") -> HTMLResponse:
    """Show open failures in groups."""
    tasks = graph.tasks()
    return page(
        request,
        "failures.html",
        visitor=visitor,
        crawl=graph.crawl,
        tab="failures",
        task_names=[one.name for one in tasks],
        filters={"task": task},
        groups=_groups(graph, task or None),
        next_cursor=None,
    )


def _groups(graph: ItemGraph, task: str | None) -> list[Group]:
    found: dict[str, Group] = {}
    for one in graph.failures(task):
        key = _key(one)
        error = one.error
        member = Member(one.id, one.item, str(error.get("message") or ""), one.occurred_at)
        if key not in found:
            found[key] = Group(
                key=key,
                task=one.task,
                is_refusal=one.is_refusal,
                type=str(error.get("type") or "Error"),
                message=member.message,
                place=str(error.get("place") or ""),
                count=0,
                first_at=one.occurred_at,
                last_at=one.occurred_at,
                example=one,
                spider=str(error.get("spider") or "SPIDER"),
                traceback=str(error.get("traceback") or ""),
                snippet=str(error.get("snippet") or ""),
            )
        group = found[key]
        group.count += 1
        group.last_at = max(group.last_at, one.occurred_at)
        if len(group.members) < _MEMBERS:
            group.members.append(member)
    return sorted(found.values(), key=lambda group: group.last_at, reverse=True)


def _key(one: OpenFailure) -> str:
    message = re.sub(r"\d+", "0", str(one.error.get("message") or "")[:200])
    parts = (one.task, str(one.is_refusal), str(one.error.get("type")), message)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


@router.post("/crawls/{crawl:segment}/handle", name="handle")
def handle(request: Request, _: Operator, graph: CrawlGraph, form: Fields) -> Response:
    """Handle a failure, a group of them, or all of a task."""
    retry = bool(form["retry"])
    path = back_to(request, links.of_crawl(graph.crawl, "failures"))
    try:
        number = _handled(graph, form, retry=retry)
    except NotFoundError:
        number = 0
    if not number:
        return messages.say(
            request, path, "There was nothing left to handle: somebody was faster.", kind="warn"
        )
    what = "1 failure is" if number == 1 else f"{number:,} failures are"
    then = "what it held may run again" if retry else "it stays held until it is expired"
    return messages.say(request, path, f"{what} handled: {then}.")


def _handled(graph: ItemGraph, form: Fields, *, retry: bool) -> int:
    if form["failure"]:
        if not form["failure"].isdecimal():
            raise OperationError("this is no failure's number")
        return graph.handle(int(form["failure"]), retry=retry)
    if form["group"]:
        total = 0
        for group in _groups(graph, None):
            if group.key == form["group"]:
                for one in group.members:
                    total += graph.handle(one.id, retry=retry)
        return total
    if form["task"]:
        return graph.handle(task=form["task"], retry=retry)
    raise OperationError("say which failure, group or task is handled")
