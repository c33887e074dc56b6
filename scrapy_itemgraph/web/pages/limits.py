"""Slots and limits: how fast websites are asked, and what people change of that."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from starlette.responses import Response

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.model.periods import parse_period
from scrapy_itemgraph.model.rates import RateLimit
from scrapy_itemgraph.web.access import Operator, Reader
from scrapy_itemgraph.web.graphs import CrawlGraph
from scrapy_itemgraph.web.pages import links, messages, plots
from scrapy_itemgraph.web.pages.rendering import page, short
from scrapy_itemgraph.web.pages.routes import Fields, PageRoute, back_to

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy_itemgraph.graph import ItemGraph
    from scrapy_itemgraph.store.admin.activity import LimitMinute
    from scrapy_itemgraph.store.admin.limit_changes import Changed
    from scrapy_itemgraph.store.admin.limit_reports import LimitState

router = APIRouter(route_class=PageRoute)

_SHOWN = 100


@router.get("/crawls/{crawl:segment}/slots", name="slots")
def slots(request: Request, visitor: Reader, graph: CrawlGraph) -> HTMLResponse:
    """Show the limits that the crawl's work keeps to."""
    of_crawl = graph.limits.list(of_crawl=True, limit=_SHOWN)
    names = {one.name for one in of_crawl}
    found = [*of_crawl, *(one for one in graph.limits.list(limit=_SHOWN) if one.name not in names)]
    return page(
        request,
        "slots.html",
        visitor=visitor,
        crawl=graph.crawl,
        tab="slots",
        slots=found,
        requests=_requests(graph, found),
    )


def _requests(graph: ItemGraph, limits: Sequence[LimitState]) -> dict[str, plots.Spark]:
    by_name: dict[str, list[LimitMinute]] = defaultdict(list)
    for row in graph.activity.requests(timedelta(minutes=plots.SPARK_MINUTES + 1)):
        by_name[row.name].append(row)
    now = datetime.now(UTC)
    return {
        one.name: plots.spark(by_name[one.name], one.delay or None, now)
        for one in limits
        if one.name in by_name
    }


@router.post("/crawls/{crawl:segment}/block", name="block")
def block(request: Request, _: Operator, graph: CrawlGraph, form: Fields) -> Response:
    """Let nothing start in a slot for a period."""
    changed = graph.limits.block(form.exact("slot"), for_=_period(form["for"]))
    return _said(request, graph, changed, f"is blocked for {form['for']}")


@router.post("/crawls/{crawl:segment}/unblock", name="unblock")
def unblock(request: Request, _: Operator, graph: CrawlGraph, form: Fields) -> Response:
    """End a block."""
    return _said(
        request, graph, graph.limits.unblock(form.exact("slot")), "is not blocked any more"
    )


@router.post("/crawls/{crawl:segment}/set-delay", name="set-delay")
def set_delay(request: Request, _: Operator, graph: CrawlGraph, form: Fields) -> Response:
    """Set the seconds between two starts in a slot, or take that back."""
    text = form["delay"]
    try:
        seconds = float(text) if text else None
    except ValueError:
        raise OperationError(f"the delay is a number of seconds, not {text!r:.60}") from None
    changed = graph.limits.set_delay(form.exact("slot"), seconds)
    says = "has the delay that its settings say" if seconds is None else f"has a delay of {text} s"
    return _said(request, graph, changed, says)


@router.post("/crawls/{crawl:segment}/set-limit", name="set-limit")
def set_limit(request: Request, _: Operator, graph: CrawlGraph, form: Fields) -> Response:
    """Set a limit's rate and concurrency, or take that back."""
    rate = _rate(form["rate"], form["concurrency"])
    changed = graph.limits.set_rate(form.exact("limit"), rate)
    says = "is as the code says" if rate is None else f"is limited to {rate}"
    return _said(request, graph, changed, says)


def _period(text: str) -> timedelta:
    try:
        return parse_period(float(text) if text.replace(".", "", 1).isdecimal() else text, "it")
    except (ValueError, TypeError, OverflowError) as error:
        raise OperationError(f"for how long: {error}") from None


def _rate(rate: str, concurrency: str) -> RateLimit | None:
    if not rate and not concurrency:
        return None
    try:
        return RateLimit(rate or None, concurrency=int(concurrency) if concurrency else None)
    except ValueError as error:
        raise OperationError(str(error)) from None


def _said(request: Request, graph: ItemGraph, changed: Changed, says: str) -> Response:
    path = back_to(request, links.of_crawl(graph.crawl, "slots"))
    name = short(changed.limit.name)
    if not changed.is_changed:
        return messages.say(request, path, f"{name} was so already.", kind="warn")
    if changed.is_new:
        hint = changed.hint.removeprefix("; ")
        text = f"{name} {says}. No work has named it before{f': {hint}' if hint else '.'}"
        return messages.say(request, path, text, kind="warn")
    return messages.say(request, path, f"{name} {says}.")
