"""Rules of a crawl: which pages belong to it, and how they are asked for."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response

from scrapy_itemgraph.model.rules import PageRule, Ruleset, Setting, StoredRuleset, added
from scrapy_itemgraph.web import bodies, models, rule_changes, rule_models
from scrapy_itemgraph.web.access import Reader, Steerer
from scrapy_itemgraph.web.documents import answer, page
from scrapy_itemgraph.web.graphs import CrawlGraph
from scrapy_itemgraph.web.parameters import Limit

router = APIRouter()

Number = Annotated[int | None, Query(ge=1, lt=bodies.INT32, description="of an earlier ruleset")]
Before = Annotated[int | None, Query(ge=1, lt=bodies.INT32, alias="after")]
Place = Annotated[int, Path(ge=1, lt=bodies.INT32, description="the rule's number, from 1")]
OnlyAfter = Annotated[int | None, Query(ge=0, lt=bodies.INT32)]
Urls = Annotated[list[bodies.Id], Query(alias="url", min_length=1, max_length=100)]


@router.get("/rules", response_model=rule_models.Ruleset)
def show_rules(graph: CrawlGraph, _: Reader, number: Number = None) -> Response:
    """Return the rules in force, or those of an earlier ruleset."""
    return answer(plain(graph.rules.get(number)))


@router.get("/rules/versions", response_model=models.Page[rule_models.Ruleset])
def list_rulesets(
    graph: CrawlGraph, _: Reader, before: Before = None, limit: Limit = 100
) -> Response:
    """List rulesets, the newest first."""
    found = graph.rules.versions(before=before, limit=limit)
    return answer(page(found, limit, lambda one: one.number, plain))


@router.put("/rules", response_model=rule_models.Ruleset)
def put_rules(graph: CrawlGraph, visitor: Steerer, given: bodies.Rules) -> Response:
    """Put rules in force in the place of all that are."""
    new = Ruleset.read({"accept": given.accept, "rules": given.rules})
    return answer(plain(_changed(graph, visitor, given, lambda _: new, "all of them")))


@router.post("/rules", response_model=rule_models.Ruleset, status_code=201)
def add_rule(graph: CrawlGraph, visitor: Steerer, given: bodies.NewRule) -> Response:
    """Add a rule, or several: the last ones, or before the one that is `at` now."""
    patterns = [given.match] if isinstance(given.match, str) else given.match
    says = {one.value: getattr(given, one) for one in Setting}
    rules = [PageRule(match=one, **says) for one in patterns]
    stored = _changed(
        graph, visitor, given, lambda now: now.with_rules(rules, given.at), added(rules)
    )
    return answer(plain(stored), 201)


@router.post("/rules/{rule}/move", response_model=rule_models.Ruleset)
def move_rule(
    graph: CrawlGraph, visitor: Steerer, rule: Place, given: bodies.MovedRule
) -> Response:
    """Move a rule to another place."""
    said = f"moved {rule} to {given.to}"
    return answer(
        plain(_changed(graph, visitor, given, lambda now: now.moved(rule, given.to), said))
    )


@router.delete("/rules/{rule}", response_model=rule_models.Ruleset)
def remove_rule(
    graph: CrawlGraph, visitor: Steerer, rule: Place, only_after: OnlyAfter = None
) -> Response:
    """Remove a rule."""
    stored = rule_changes.change(
        graph,
        visitor,
        lambda now: now.without(rule),
        said=f"removed {rule}",
        only_after=only_after,
    )
    return answer(plain(stored))


@router.get("/rules/test", response_model=rule_models.TestedUrls)
def try_urls(graph: CrawlGraph, _: Reader, urls: Urls, number: Number = None) -> Response:
    """Say what the rules make of URLs, and which rule decides."""
    stored = graph.rules.get(number)
    tested = [(url, graph.rules.test(url, number)) for url in urls]
    rows = [
        {
            "url": url,
            **{
                one.value: {"value": getattr(found, one), "rule": found.by.get(one)}
                for one in Setting
            },
        }
        for url, found in tested
    ]
    return answer({"number": stored.number, "urls": rows})


@router.get("/rules/diff", response_model=rule_models.RuleDifference)
def compare_rules(graph: CrawlGraph, _: Reader, number: Number = None) -> Response:
    """Count what rules would change of what waits, if they were applied now."""
    stored = graph.rules.get(number)
    return answer({"number": stored.number, **graph.rules.diff(stored.ruleset)._asdict()})


@router.post("/rules/apply", response_model=rule_models.AppliedRules, status_code=202)
def apply_rules(graph: CrawlGraph, visitor: Steerer) -> Response:
    """Apply the rules in force to what waits; the crawl's status says how far that is."""
    rule_changes.check_crawl(graph, visitor)
    graph.rules.apply()
    return answer({"number": graph.rules.get().number}, 202)


def _changed(
    graph: CrawlGraph, visitor: Steerer, given: bodies.RuleChange, changed: Any, said: str
) -> StoredRuleset:
    return rule_changes.change(
        graph,
        visitor,
        changed,
        said=said,
        only_after=given.only_after,
        note=given.note,
        applies=given.apply,
    )


def plain(one: StoredRuleset) -> dict[str, Any]:
    """Return a ruleset as the command line has it, with each rule's settings in full."""
    rules = [
        {"match": rule.match, **{name.value: getattr(rule, name) for name in Setting}}
        for rule in one.ruleset.rules
    ]
    told = {name: getattr(one, name) for name in ("created_at", "created_by", "note")}
    return {"number": one.number, "accept": one.ruleset.accept, "rules": rules, **told}
