"""What the API answers of rules, typed as in `web.models`."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel

from scrapy_itemgraph.store.registry import rule_sweeps
from scrapy_itemgraph.web.models import of_record


class Rule(BaseModel):
    """A rule: a pattern, and what holds for the pages that it matches; null: it says nothing."""

    match: str
    accept: bool | None
    skip: bool | None
    user_agent: str | None
    hook: str | None


class Ruleset(BaseModel):
    """The rules of a crawl in their order, and `accept` for links that none of them matches.

    `number` counts the rulesets of the crawl; 0: it never had any.
    """

    number: int
    accept: bool
    rules: list[Rule]
    created_at: datetime | None
    created_by: str | None
    note: str | None


class DecidedBool(BaseModel):
    """What rules say, and the number of the rule that decides; null: no rule speaks of it."""

    value: bool
    rule: int | None


class DecidedText(BaseModel):
    """The same of a text."""

    value: str | None
    rule: int | None


class TestedUrl(BaseModel):
    """What rules make of a URL."""

    url: str
    accept: DecidedBool
    skip: DecidedBool
    user_agent: DecidedText
    hook: DecidedText


class TestedUrls(BaseModel):
    """What the rules of a number make of URLs."""

    number: int
    urls: list[TestedUrl]


@of_record(rule_sweeps.Difference)
class RuleChanges(BaseModel):
    """What rules would change of what waits."""


class RuleDifference(RuleChanges):
    """The same, of the rules of a number."""

    number: int


class AppliedRules(BaseModel):
    """The number of the rules that are being applied to what waits."""

    number: int
