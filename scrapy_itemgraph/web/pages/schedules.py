"""Schedules: when crawls of the queue are started again, and what people change of that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Path, Request
from fastapi.responses import HTMLResponse
from starlette.responses import Response

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.model.schedule_terms import NewSchedule
from scrapy_itemgraph.model.schedules import CatchUp, Kind, Overlap, format_exactly
from scrapy_itemgraph.web import bodies, schedule_terms
from scrapy_itemgraph.web.access import Reader, Steerer
from scrapy_itemgraph.web.graphs import AllGraphs
from scrapy_itemgraph.web.pages import messages
from scrapy_itemgraph.web.pages.rendering import page, short
from scrapy_itemgraph.web.pages.routes import Fields, Form, PageRoute, back_to
from scrapy_itemgraph.web.parameters import AfterNumber

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from scrapy_itemgraph.graph import ItemGraph
    from scrapy_itemgraph.model.schedule_terms import Schedule

router = APIRouter(route_class=PageRoute)

_SHOWN = 100
_NEXT = 10

Number = Annotated[int, Path(ge=1, lt=bodies.INT32)]
WORDS: dict[str, Any] = {
    "kinds": [str(one) for one in Kind],
    "catch_ups": [str(one) for one in CatchUp],
    "overlaps": [str(one) for one in Overlap],
}
_NEW = {"kind": "at", "catch_up": "one", "overlap": "skip", "grace": "10m"}


@router.get("/schedules", name="schedules")
def schedules(
    request: Request, visitor: Reader, graphs: AllGraphs, crawl: str = "", after: AfterNumber = 0
) -> HTMLResponse:
    """Show schedules, by their numbers."""
    found = graphs.served.schedules.list(crawl=crawl or None, after=after, limit=_SHOWN)
    return page(
        request,
        "schedules.html",
        visitor=visitor,
        tab="schedules",
        schedules=found,
        of_crawl=crawl,
        values=Form({name: [value] for name, value in {**_NEW, "crawl": crawl}.items()}),
        after=found[-1].id if len(found) == _SHOWN else None,
        **WORDS,
    )


@router.post("/schedules", name="add-schedule")
def add(request: Request, visitor: Steerer, graphs: AllGraphs, form: Fields) -> Response:
    """Have a crawl of the queue started again and again."""
    rule = schedule_terms.rule_of(rule_in(form))
    if rule is None:
        raise OperationError("say when, such as 03:00")
    new = NewSchedule(rule=rule, **schedule_terms.terms_of(_terms_in(form)))
    made = graphs.served.schedules.add(form.exact("crawl"), new, by=visitor.by)
    return _said(request, made, f"starts {short(made.crawl)} {made.rule}")


@router.get("/schedules/{number}", name="schedule")
def schedule(request: Request, visitor: Reader, graphs: AllGraphs, number: Number) -> HTMLResponse:
    """Show a schedule, and when it is due next."""
    found = graphs.served.schedules.get(number)
    times, why_none = _next_times(graphs.served, number)
    return page(
        request,
        "schedule.html",
        visitor=visitor,
        tab="schedules",
        found=found,
        times=[schedule_terms.due_time(one, found.time_zone) for one in times],
        why_none=why_none,
        values=_as_form(found),
        **WORDS,
    )


def _next_times(graph: ItemGraph, number: int) -> tuple[Sequence[datetime], str]:
    """Return when a schedule is due next, and why there is nothing if there is not."""
    try:
        return graph.schedules.next(number, count=_NEXT), "It is due no more."
    except OperationError as error:  # its rule cannot be read; it can be changed
        return [], str(error)


@router.post("/schedules/{number}/set", name="set-schedule")
def set_schedule(
    request: Request, visitor: Steerer, graphs: AllGraphs, number: Number, form: Fields
) -> Response:
    """Change a schedule: what the form has otherwise."""
    now = graphs.served.schedules.get(number)
    wanted = schedule_terms.terms_of(_terms_in(form))
    changes = {name: value for name, value in wanted.items() if value != getattr(now, name)}
    given, had = rule_in(form), rule_in(_as_form(now))
    if given != had and (rule := schedule_terms.rule_of(given)) is not None:
        changes["rule"] = rule
    if not changes:
        return _said(request, now, "was so already", kind="warn")
    one = graphs.served.schedules.set(number, by=visitor.by, **changes)
    return _said(request, one, f"starts {short(one.crawl)} {one.rule}")


@router.post("/schedules/{number}/enable", name="enable-schedule")
def enable(
    request: Request, visitor: Steerer, graphs: AllGraphs, number: Number, _form: Fields
) -> Response:
    """Have a schedule start its crawl again."""
    one = graphs.served.schedules.enable(number, by=visitor.by)
    return _said(request, one, f"starts {short(one.crawl)} {one.rule}")


@router.post("/schedules/{number}/disable", name="disable-schedule")
def disable(
    request: Request, visitor: Steerer, graphs: AllGraphs, number: Number, _form: Fields
) -> Response:
    """Have a schedule start nothing until it is enabled."""
    one = graphs.served.schedules.disable(number, by=visitor.by)
    return _said(
        request, one, "starts nothing until it is enabled; what has not begun is cancelled"
    )


@router.post("/schedules/{number}/remove", name="remove-schedule")
def remove(
    request: Request, visitor: Steerer, graphs: AllGraphs, number: Number, _form: Fields
) -> Response:
    """Remove a schedule; its crawl and its jobs stay, and what has not begun is cancelled."""
    graphs.served.schedules.remove(number, by=visitor.by)
    root: str = request.scope.get("root_path", "").rstrip("/")
    return messages.say(
        request,
        f"{root}/schedules",
        f"Schedule {number} is removed; what had not begun is cancelled.",
    )


def _said(request: Request, one: Schedule, says: str, *, kind: str = "good") -> Response:
    back = back_to(request, f"/schedules/{one.id}")
    return messages.say(request, back, f"Schedule {one.id} {says}.", kind=kind)


def rule_in(form: Form) -> dict[str, Any]:
    """Return the rule that a form has: its kind, when, and in which time zone."""
    kind, zone = form["kind"], form["time_zone"]
    if kind not in set(Kind):
        if form["when"]:
            raise OperationError(f"choose how it is started, and not at once, for {form['when']!r}")
        return {}
    return {kind: form["when"], "time_zone": None if kind == Kind.EVERY else zone or None}


def _terms_in(form: Form) -> dict[str, Any]:
    words = {name: form[name] for name in ("catch_up", "overlap", "grace") if form[name]}
    return words | {name: form[name] or None for name in ("jitter", "time_limit")}


def _as_form(one: Schedule) -> Form:
    periods = {name: getattr(one, name) for name in ("grace", "jitter", "time_limit")}
    fields = {
        "kind": one.kind,
        "when": one.spec,
        "time_zone": "" if one.kind == Kind.EVERY else one.time_zone,
        "catch_up": one.catch_up,
        "overlap": one.overlap,
        **{name: "" if one is None else format_exactly(one) for name, one in periods.items()},
    }
    return Form({name: [value] for name, value in fields.items()})
