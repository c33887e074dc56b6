"""Rules of a crawl: which pages belong to it, tried on a URL, and changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import HTMLResponse
from starlette.responses import Response

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.model.rules import PageRule, Setting, said
from scrapy_itemgraph.web import bodies, rule_changes
from scrapy_itemgraph.web.access import Reader, Steerer
from scrapy_itemgraph.web.graphs import CrawlGraph
from scrapy_itemgraph.web.pages import links, messages
from scrapy_itemgraph.web.pages.rendering import page
from scrapy_itemgraph.web.pages.routes import Fields, Form, PageRoute, back_to

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_itemgraph.access.visitors import Visitor
    from scrapy_itemgraph.graph import ItemGraph
    from scrapy_itemgraph.model.rule_matching import Decision
    from scrapy_itemgraph.model.rules import Ruleset, StoredRuleset

router = APIRouter(route_class=PageRoute)

Place = Annotated[int, Path(ge=1, lt=bodies.INT32)]
Tried = Annotated[str, Query(alias="url", max_length=8192)]
_VERSIONS = 20
_AT = "/crawls/{crawl:segment}/rules"
_YES_NO = {"yes": True, "no": False}


@router.get(_AT, name="rules")
def rules(
    request: Request,
    visitor: Reader,
    graph: CrawlGraph,
    *,
    url: Tried = "",
    number: Annotated[int | None, Query(ge=1, lt=bodies.INT32)] = None,
    counts: bool = False,
) -> HTMLResponse:
    """Show the rules in force, or those of an earlier ruleset, and what they make of a URL."""
    stored = graph.rules.get(number)
    return page(
        request,
        "rules.html",
        visitor=visitor,
        crawl=graph.crawl,
        tab="rules",
        stored=stored,
        number=number,
        rules=[(one.match, said(one.says)) for one in stored.ruleset.rules],
        versions=graph.rules.versions(limit=_VERSIONS),
        applying=graph.rules.applying(),
        url=url,
        decided=_decided(graph.rules.test(url, number), stored) if url else [],
        difference=graph.rules.diff(stored.ruleset) if counts else None,
    )


def _decided(found: Decision, stored: StoredRuleset) -> list[tuple[str, str, int | None, str]]:
    """Return of each setting what the rules say, the number of the rule, and its pattern."""
    rows = []
    for one in Setting:
        value, place = getattr(found, one), found.by.get(one)
        if value is not None:
            shown = {True: "yes", False: "no"}.get(value, str(value))
            pattern = "" if place is None else stored.ruleset.rules[place - 1].match
            rows.append((one.replace("_", " "), shown, place, pattern))
    return rows


@router.post(_AT, name="add-rule")
def add(request: Request, visitor: Steerer, graph: CrawlGraph, form: Fields) -> Response:
    """Add a rule."""
    rule = PageRule(
        match=form["match"],
        accept=_YES_NO.get(form["accept"]),
        skip=_YES_NO.get(form["skip"]),
        user_agent=form["user_agent"] or None,
        hook=form["hook"] or None,
    )
    at = _number(form["at"])
    return _change(
        request, visitor, graph, form, lambda now: now.with_rule(rule, at), f"added {rule}"
    )


@router.post(_AT + "/default", name="default-rule")
def default(request: Request, visitor: Steerer, graph: CrawlGraph, form: Fields) -> Response:
    """Say what holds for links that no rule matches."""
    accept = form["accept"] != "no"
    word = "accepted" if accept else "refused"
    return _change(
        request,
        visitor,
        graph,
        form,
        lambda now: now.with_default(accept=accept),
        f"links that no rule matches are {word}",
    )


@router.post(_AT + "/apply", name="apply-rules")
def apply(request: Request, visitor: Steerer, graph: CrawlGraph, _form: Fields) -> Response:
    """Apply the rules to what waits."""
    rule_changes.check_crawl(graph, visitor)
    graph.rules.apply()
    return _said(request, graph, "The rules are applied to what waits; the overview says how far.")


@router.post(_AT + "/{place}/remove", name="remove-rule")
def remove(
    request: Request, visitor: Steerer, graph: CrawlGraph, place: Place, form: Fields
) -> Response:
    """Remove a rule."""
    return _change(
        request, visitor, graph, form, lambda now: now.without(place), f"removed rule {place}"
    )


@router.post(_AT + "/{place}/move", name="move-rule")
def move(
    request: Request, visitor: Steerer, graph: CrawlGraph, place: Place, form: Fields
) -> Response:
    """Move a rule to another place."""
    to = _number(form["to"])
    if to is None:
        raise OperationError("say where the rule goes, by number")
    return _change(
        request,
        visitor,
        graph,
        form,
        lambda now: now.moved(place, to),
        f"moved rule {place} to {to}",
    )


def _change(
    request: Request,
    visitor: Visitor,
    graph: ItemGraph,
    form: Form,
    changed: Callable[[Ruleset], Ruleset],
    what: str,
) -> Response:
    stored = rule_changes.change(
        graph,
        visitor,
        changed,
        said=what,
        only_after=_number(form["only_after"]),
        note=form["note"],
        applies=bool(form["apply"]),
    )
    applied = ", and is applied to what waits" if form["apply"] else ""
    what = f"{what[0].upper()}{what[1:]}"
    return _said(
        request,
        graph,
        f"{what}. Ruleset {stored.number} is in force from the next claim on{applied}.",
    )


def _said(request: Request, graph: ItemGraph, text: str) -> Response:
    return messages.say(request, back_to(request, links.of_crawl(graph.crawl, "rules")), text)


def _number(given: str) -> int | None:
    """Return a number that a form has; None where it has none."""
    if not given:
        return None
    if not (given.isascii() and given.isdecimal() and len(given) < _DIGITS):
        raise OperationError(f"{given!r:.40} is no number of a rule or ruleset")
    return int(given)


_DIGITS = 10
