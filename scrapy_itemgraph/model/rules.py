"""Rules: which pages belong to a crawl, and how they are asked for; plain data, checked here once.

Of each setting the last rule counts that matches a page's URL. A ruleset never changes; whoever
changes the rules of a crawl makes another one. `rule_matching` decides by them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from scrapy_itemgraph.exceptions import NotFoundError, OperationError
from scrapy_itemgraph.model import input_checks
from scrapy_itemgraph.tools.wording import closest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

MOST_RULES: Final = 1000
MOST_PATTERN: Final = 4000  # characters of a pattern
MOST_CHARACTERS: Final = 1000  # characters of a user agent
_MOST_FAULTS = 20  # that one error tells
# What a request has escaped, where a pattern asks for it: by itself or behind a backslash. Passed
# over are classes, repetitions and all else. Brackets stand around the address of IPv6.
_ESCAPED_IN_URLS = re.compile(
    r"""\[\^?\]?(?:[^\]\\]|\\.)*\]|\{\d[^}]*\}|\\[^"<>^`{|} ]|[^"<>`{} \\]
    |\\?(?P<one>["<>^`{|}\ ])(?![?*]|\{0)""",
    re.VERBOSE | re.DOTALL,
)

EVERYTHING: Final = "."
"""The pattern that matches every URL."""


class Setting(StrEnum):
    """What a rule may say of the pages that it matches."""

    ACCEPT = "accept"
    SKIP = "skip"
    USER_AGENT = "user_agent"
    HOOK = "hook"


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRule:
    """A pattern, and what holds for the pages whose URL it matches anywhere; None: nothing said.

    `accept`: a link to such a page becomes a page of the crawl. `skip`: such a page is set aside
    and not asked for. `user_agent` is sent as its User-Agent, and `hook` names a function of
    ITEMGRAPH_HOOKS that its request is given to.
    """

    match: str
    accept: bool | None = None
    skip: bool | None = None
    user_agent: str | None = None
    hook: str | None = None

    @property
    def says(self) -> dict[str, Any]:
        """What it says, by setting."""
        found = ((one.value, getattr(self, one.value)) for one in Setting)
        return {name: value for name, value in found if value is not None}

    @property
    def as_document(self) -> dict[str, Any]:
        """The rule as it is stored, and shown as JSON."""
        return {"match": self.match, **self.says}

    def __str__(self) -> str:
        return f"{self.match}: {said(self.says)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruleset:
    """Rules in their order; `accept` is what holds for links that no rule matches."""

    accept: bool = True
    rules: tuple[PageRule, ...] = ()

    @classmethod
    def accepting(cls, patterns: Sequence[str]) -> Ruleset:
        """Return the rules of a crawl that takes in nothing but what one of the patterns matches.

        Raises:
            OperationError: a pattern that cannot be one.

        """
        rules = tuple(PageRule(match=one, accept=True) for one in patterns)
        return checked(cls(accept=False, rules=rules))

    @classmethod
    def read(cls, stored: Any) -> Ruleset:
        """Read a ruleset from JSON as it is stored.

        Raises:
            OperationError: it is none; it says what is wrong, and with which rule.

        """
        if not isinstance(stored, Mapping):
            raise OperationError(f"rules are {_FORM}, and not {stored!r:.80}")
        _refuse_others(stored, {"accept", "rules"}, "the rules")
        rules, accept = stored.get("rules", ()), stored.get("accept", True)
        if not isinstance(accept, bool):
            raise OperationError(f"the rules' accept is true or false, not {accept!r:.80}")
        if not isinstance(rules, list | tuple):
            raise OperationError(f"rules is a list of rules, and not {rules!r:.80}")
        if len(rules) > MOST_RULES:
            raise OperationError(_too_many(len(rules)))
        read = tuple(_read_rule(one, number) for number, one in enumerate(rules, start=1))
        return checked(cls(accept=accept, rules=read))

    @property
    def as_document(self) -> dict[str, Any]:
        """The ruleset as it is stored, and shown as JSON."""
        return {"accept": self.accept, "rules": [one.as_document for one in self.rules]}

    def with_rule(self, rule: PageRule, at: int | None = None) -> Ruleset:
        """Return these rules with another one, the last, or before the one that is `at` now.

        Raises:
            OperationError: it cannot be a rule, or there is no such place, or no room.

        """
        return self.with_rules([rule], at)

    def with_rules(self, rules: Sequence[PageRule], at: int | None = None) -> Ruleset:
        """Return these rules with others, as `with_rule` does."""
        place = len(self.rules) + 1 if at is None else at
        if not 1 <= place <= len(self.rules) + 1:
            raise OperationError(
                f"{place} is no place for a rule: there are {len(self.rules)}, so 1 to "
                f"{len(self.rules) + 1}"
            )
        before, after = self.rules[: place - 1], self.rules[place - 1 :]
        return checked(replace(self, rules=(*before, *rules, *after)))

    def without(self, which: int | str) -> Ruleset:
        """Return these rules without one, given by its number from 1, or by its pattern.

        Raises:
            NotFoundError: there is no such rule, or there are several of this pattern.

        """
        place = self.place_of(which)
        return replace(self, rules=(*self.rules[: place - 1], *self.rules[place:]))

    def moved(self, which: int | str, to: int) -> Ruleset:
        """Return these rules with one of them at another place; raises as both above."""
        rule = self.rules[self.place_of(which) - 1]
        return self.without(which).with_rule(rule, to)

    def with_default(self, *, accept: bool) -> Ruleset:
        """Return these rules with what holds for links that none of them matches."""
        return replace(self, accept=accept)

    def place_of(self, which: int | str) -> int:
        """Return the number of a rule, from 1; raises as `without` does."""
        if isinstance(which, int):
            if 1 <= which <= len(self.rules):
                return which
            there = f"there are {len(self.rules)}" if self.rules else "there are none"
            raise NotFoundError(f"there is no rule {which}: {there}")
        found = [place for place, one in enumerate(self.rules, start=1) if one.match == which]
        if len(found) == 1:
            return found[0]
        if found:
            listed = ", ".join(map(str, found))
            raise NotFoundError(
                f"several rules have the pattern {which!r}: {listed}; say which by number"
            )
        near = closest(which, [one.match for one in self.rules])
        raise NotFoundError(f"no rule has the pattern {which!r:.200}{near}")

    @property
    def hooks(self) -> set[str]:
        """The names of the hooks that its rules call."""
        return {one.hook for one in self.rules if one.hook is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRuleset:
    """A ruleset of a crawl, as it is stored; `number` counts those of the crawl, from 1.

    `id` is that of the database, and 0 for a crawl that never had rules, whose `number` is 0.
    """

    id: int = 0
    number: int = 0
    ruleset: Ruleset = Ruleset()
    created_at: datetime | None = None
    created_by: str | None = None
    note: str | None = None


def added(rules: Sequence[PageRule]) -> str:
    """Return what the history says of rules that were added at once."""
    return f"added {rules[0]}" if len(rules) == 1 else f"added {len(rules):,} rules"


def said(says: Mapping[str, Any]) -> str:
    """Return what a rule says, in the words of the command that makes it."""
    return ", ".join(_words(says))


def _words(says: Mapping[str, Any]) -> Iterator[str]:
    for name, value in says.items():
        word = name.replace("_", " ")
        if isinstance(value, bool):
            yield word if value else f"no {word}"
        else:
            yield f"{word} {value}"


_FORM = '{"accept": true, "rules": [{"match": "PATTERN", "accept": false}, …]}'


def checked(ruleset: Ruleset) -> Ruleset:
    """Return a ruleset that can be stored; its patterns are not compiled for that.

    Raises:
        OperationError: there are too many rules, or one that cannot be.

    """
    if len(ruleset.rules) > MOST_RULES:
        raise OperationError(_too_many(len(ruleset.rules)))
    faults = []
    for number, rule in enumerate(ruleset.rules, start=1):
        try:
            _check(rule, number)
        except OperationError as error:
            faults.append(str(error))
    if faults:
        raise OperationError(all_of(faults))
    return ruleset


def all_of(faults: Sequence[str]) -> str:
    """Return what is said of faults: all at once, so that nobody mends one after the other."""
    more = len(faults) - _MOST_FAULTS
    return "; ".join([*faults[:_MOST_FAULTS], *([f"and {more:,} more"] if more > 0 else ())])


def never_matched(pattern: str) -> str | None:
    """Return a character that a pattern asks for and no URL has as it is; None: no such is seen.

    Patterns with alternatives, or with groups that may be left out, are not looked at.
    """
    if re.search(r"(?<!\\)\||\)[?*{]", pattern):
        return None
    return next((one["one"] for one in _ESCAPED_IN_URLS.finditer(pattern) if one["one"]), None)


def _too_many(count: int) -> str:
    return (
        f"{count:,} rules are more than {MOST_RULES:,}: join patterns with |, as in "
        "/(calendar|login)/"
    )


def _check(rule: PageRule, number: int) -> None:
    where = f"rule {number}"
    if not isinstance(rule.match, str):
        raise OperationError(f"{where}: a pattern is text, and not {rule.match!r:.80}")
    if not rule.match:
        raise OperationError(
            f"{where}: the pattern is empty, which would match every URL; if that is meant, write "
            f"{EVERYTHING}"
        )
    input_checks.check_text(rule.match, f"{where}: the pattern", OperationError)
    if len(rule.match) > MOST_PATTERN:
        raise OperationError(
            f"{where}: the pattern has {len(rule.match):,} characters, more than "
            f"{MOST_PATTERN:,}: make several rules of it"
        )
    for name in (Setting.ACCEPT, Setting.SKIP):
        value = getattr(rule, name)
        if value is not None and not isinstance(value, bool):
            raise OperationError(f"{where}: {name} is true or false, not {value!r:.80}")
    for name in (Setting.USER_AGENT, Setting.HOOK):
        _check_value(getattr(rule, name), f"{where}: {name}")
    if not rule.says:
        raise OperationError(
            f"{where} says nothing of the pages that it matches: give it one of accept, skip, "
            "user agent and hook"
        )


def _check_value(value: Any, what: str) -> None:
    """Check a user agent, or the name of a hook."""
    if value is None:
        return
    if not isinstance(value, str) or not value.strip():
        raise OperationError(f"{what} is text, and not {value!r:.80}")
    if not (value.isascii() and value.isprintable()) or len(value) > MOST_CHARACTERS:
        raise OperationError(
            f"{what} is a line of ASCII of up to {MOST_CHARACTERS:,} characters, and not "
            f"{value!r:.80}"
        )


def _read_rule(stored: Any, number: int) -> PageRule:
    if not isinstance(stored, Mapping):
        raise OperationError(f"rule {number} is a JSON object, and not {stored!r:.80}")
    _refuse_others(stored, {"match", *map(str, Setting)}, f"rule {number}")
    if "match" not in stored:
        raise OperationError(f"rule {number} has no match: the pattern of the URLs that it is for")
    return PageRule(**stored)


def _refuse_others(stored: Mapping[Any, Any], known: set[str], what: str) -> None:
    unknown = [str(one) for one in stored if one not in known]
    if unknown:
        raise OperationError(
            f"{what} has {unknown[0]!r:.80}{closest(unknown[0], sorted(known))}; it may have "
            f"{', '.join(sorted(known))}"
        )
