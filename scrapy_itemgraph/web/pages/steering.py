"""What people do with crawls of the queue: add them, steer them, change their terms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from starlette.responses import Response

from scrapy_itemgraph.access.visitors import Visitor
from scrapy_itemgraph.exceptions import DatabaseError, ItemGraphError, OperationError
from scrapy_itemgraph.model import periods
from scrapy_itemgraph.model.crawl_states import Change
from scrapy_itemgraph.model.rules import Ruleset
from scrapy_itemgraph.web import bodies, problems, schedule_terms
from scrapy_itemgraph.web.access import Steerer
from scrapy_itemgraph.web.crawl_terms import CrawlTerms, Terms
from scrapy_itemgraph.web.graphs import AllGraphs, CrawlGraph
from scrapy_itemgraph.web.pages import links, messages
from scrapy_itemgraph.web.pages.rendering import page, short
from scrapy_itemgraph.web.pages.routes import Fields, Form, PageRoute, back_to
from scrapy_itemgraph.web.pages.schedules import WORDS, rule_in

if TYPE_CHECKING:
    from datetime import timedelta

    from scrapy_itemgraph.graph import ItemGraph

router = APIRouter(route_class=PageRoute)

_TEXTS = ("tag", "note", "resource")
_EMPTY = Form({"nice": ["0"], "concurrency": ["1"]})


@router.get("/queue/add", name="new-crawl")
def new(request: Request, visitor: Steerer, terms: Terms) -> HTMLResponse:
    """Show the form that puts a crawl into the queue."""
    return _form_page(request, visitor, terms, _EMPTY)


def _form_page(
    request: Request,
    visitor: Visitor,
    terms: CrawlTerms,
    form: Form,
    problem: ItemGraphError | None = None,
) -> HTMLResponse:
    try:
        spiders = terms.spiders()
    except OperationError as error:
        spiders, problem = [], problem or error
    return page(
        request,
        "new-crawl.html",
        visitor=visitor,
        tab="queue",
        status=200 if problem is None else problems.of_error(problem).status,
        values=form,
        spiders=spiders,
        project=terms.project if terms.has_code else None,
        problem=problem,
        **WORDS,
    )


@router.post("/queue/add", name="add-crawl")
def add(
    request: Request, visitor: Steerer, graphs: AllGraphs, terms: Terms, form: Fields
) -> Response:
    """Put a crawl into the queue, or show the form again with what is wrong."""
    try:
        crawl, warnings = terms.new_crawl(
            form["spider"],
            form["project"] or None,
            _pairs(form, "arguments"),
            _pairs(form, "settings"),
            name=form.exact("name") or None,
            is_paused=bool(form["paused"]),
            keeps_fresh=bool(form["keeps_fresh"]),
            nice=_number(form, "nice", 0),
            concurrency=_number(form, "concurrency", 1),
            time_limit=_period(form["time_limit"]),
            rules=_rules(form["accept"]),
            **{name: form[name] or None for name in _TEXTS},
        )
        schedule = schedule_terms.of_new_crawl(rule_in(form), is_paused=crawl.is_paused)
        added = graphs.served.queue.add(crawl, by=visitor.by, schedule=schedule)
    except DatabaseError:
        raise
    except ItemGraphError as error:
        return _form_page(request, visitor, terms, form, error)
    said = [f"{short(added.name)} is in the queue.", *(f"{one}." for one in warnings)]
    said += [f"{one}." for one in added.warnings]
    kind = "warn" if len(said) > 1 else "good"
    back = _root(request) + links.of_crawl(added.name, "queue")
    return messages.say(request, back, " ".join(said), kind=kind)


@router.post("/queue/{crawl:segment}/pause", name="pause")
def pause(request: Request, visitor: Steerer, graph: CrawlGraph, form: Fields) -> Response:
    """Have a crawl rest."""
    _change(graph, visitor, Change.PAUSE, form["reason"])
    text = "is paused; what is under way comes to its end"
    return _said(request, graph, text, undo="resume")


@router.post("/queue/{crawl:segment}/resume", name="resume")
def resume(request: Request, visitor: Steerer, graph: CrawlGraph, _form: Fields) -> Response:
    """Have a paused crawl go on."""
    _change(graph, visitor, Change.RESUME)
    return _said(request, graph, "goes on, at the place in the queue that it had")


@router.post("/queue/{crawl:segment}/abort", name="abort")
def abort(request: Request, visitor: Steerer, graph: CrawlGraph, form: Fields) -> Response:
    """End a crawl where it is."""
    _change(graph, visitor, Change.ABORT, form["reason"])
    return _said(request, graph, "is aborted; what it has stays")


@router.post("/queue/{crawl:segment}/revive", name="revive")
def revive(request: Request, visitor: Steerer, graph: CrawlGraph, form: Fields) -> Response:
    """Have a crawl go on that was over."""
    _change(graph, visitor, Change.REVIVE, keeps_place=bool(form["keep_place"]))
    return _said(request, graph, "is in the queue again")


def _change(
    graph: ItemGraph,
    visitor: Visitor,
    change: Change,
    reason: str = "",
    *,
    keeps_place: bool = False,
) -> None:
    graph.queue.change(
        graph.crawl, change, by=visitor.by, reason=reason or None, keeps_place=keeps_place
    )


@router.post("/queue/{crawl:segment}/set", name="set-terms")
def set_terms(
    request: Request, visitor: Steerer, graph: CrawlGraph, terms: Terms, form: Fields
) -> Response:
    """Change a crawl's terms: those that the form has otherwise than the crawl."""
    now = graph.queue.get(graph.crawl)
    settings = _pairs(form, "settings")
    terms.check({}, settings)
    wanted: dict[str, Any] = {
        "nice": _number(form, "nice", now.nice),
        "concurrency": _number(form, "concurrency", now.concurrency),
        "time_limit": _period(form["time_limit"]),
        "keeps_fresh": bool(form["keeps_fresh"]),
        **{name: form[name] or None for name in _TEXTS},
    }
    changes = {name: value for name, value in wanted.items() if value != getattr(now, name)}
    if settings:
        changes["start_settings"] = {**now.settings, **settings}
        terms.check_feeds(now.project, changes["start_settings"])
    if not changes:
        return _said(request, graph, "was so already", kind="warn")
    graph.queue.set(graph.crawl, by=visitor.by, **changes)
    names = ", ".join(one.removeprefix("start_").replace("_", " ") for one in changes)
    return _said(request, graph, f"has {names} as you say")


@router.post("/queue/{crawl:segment}/lock", name="lock-place")
def lock(request: Request, visitor: Steerer, graph: CrawlGraph, form: Fields) -> Response:
    """Keep a place of a runner for a crawl."""
    runner = form.exact("runner")
    number = graph.queue.lock(
        graph.crawl,
        runner,
        _number(form, "place", None),
        by=visitor.by,
        until_finished=bool(form["until_finished"]),
    )
    return _said(request, graph, f"has place {number} of the runner {short(runner)} to itself")


@router.post("/queue/{crawl:segment}/unlock", name="unlock-places")
def unlock(request: Request, visitor: Steerer, graph: CrawlGraph, _form: Fields) -> Response:
    """Let the places that are kept for a crawl be had by others."""
    places = graph.queue.unlock(graph.crawl, by=visitor.by)
    kind = "good" if places else "warn"
    text = "has no place to itself any more" if places else "had no place to itself"
    return _said(request, graph, text, kind=kind)


def _said(
    request: Request, graph: ItemGraph, says: str, *, kind: str = "good", undo: str = ""
) -> Response:
    back = back_to(request, links.of_crawl(graph.crawl, "queue"))
    path = f"{_root(request)}/queue/{links.segment(graph.crawl)}/{undo}" if undo else ""
    return messages.say(request, back, f"{short(graph.crawl)} {says}.", kind=kind, undo=path)


def _root(request: Request) -> str:
    root: str = request.scope.get("root_path", "").rstrip("/")
    return root


def _rules(given: str) -> Ruleset | None:
    """Return the rules of a new crawl that takes in what some patterns match, a line each."""
    patterns = [line.strip() for line in given.splitlines() if line.strip()]
    return Ruleset.accepting(patterns) if patterns else None


def _pairs(form: Form, name: str) -> dict[str, str]:
    """Return what a field has by its lines, each NAME=VALUE."""
    found = {}
    for line in filter(None, map(str.strip, form[name].splitlines())):
        key, equals, value = line.partition("=")
        if not equals or not key.strip():
            raise OperationError(f"{line!r:.80} is not NAME=VALUE; {name} have a line each")
        found[key.strip()] = value.strip()
    return found


def _number(form: Form, name: str, nothing: Any) -> Any:
    text = form[name]
    if not text:
        return nothing
    try:
        number = int(text)
    except ValueError:
        number = bodies.INT32
    if abs(number) >= bodies.INT32:
        raise OperationError(f"{name} is a whole number, not {text!r:.60}")
    return number


def _period(text: str) -> timedelta | None:
    try:
        if not text:
            return None
        return periods.parse_period(float(text) if text.isdecimal() else text, "the time limit")
    except (ValueError, OverflowError) as error:
        raise OperationError(str(error)) from None
