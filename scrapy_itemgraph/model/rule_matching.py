"""Decides by rules: compiled for RE2, which takes linear time for any pattern and any URL.

Of each setting all patterns are one set, which is asked once for a URL.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.exceptions import ConfigurationError, OperationError
from scrapy_itemgraph.model.rules import PageRule, Ruleset, Setting, all_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_MOST_MEMORY = 64 << 20  # bytes that one set may take, compiled and in use
_LOOKAROUND = tuple(f"invalid perl operator: (?{one}" for one in "=!<")
_ALWAYS = ""  # matches every URL, the first of each set: an answer without it is none


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What rules say of a URL, by setting, and the numbers of the rules that say so.

    A setting that no rule speaks of has its default, and no number.
    """

    accept: bool
    skip: bool
    user_agent: str | None
    hook: str | None
    by: dict[Setting, int]


class CompiledRules:
    """A ruleset, ready to be asked. Asked are URLs as they are; what follows a # is left out.

    `accepts_all` and `skips_none` tell that no URL need be asked for it, and `asks_plainly` that
    the same is true of user agents and hooks.
    """

    def __init__(self, ruleset: Ruleset) -> None:
        """Compile rules.

        Raises:
            OperationError: patterns cannot be compiled, or all together are too large; it says
                which, and what to write.
            ConfigurationError: google-re2 is not installed.

        """
        self.ruleset = ruleset
        try:
            self._accept = _Chosen(ruleset, Setting.ACCEPT)
            self._skip = _Chosen(ruleset, Setting.SKIP)
            self._user_agent = _Chosen(ruleset, Setting.USER_AGENT)
            self._hook = _Chosen(ruleset, Setting.HOOK)
        except _NoPatternError:
            raise OperationError(all_of(list(_faults(ruleset)))) from None
        self.accepts_all = ruleset.accept and self._accept.is_always(True)
        self.skips_none = self._skip.is_always(False)
        self.asks_plainly = not (self._user_agent.rules or self._hook.rules)

    def accepts(self, url: str, *, is_needed: bool = False, is_outside: bool = False) -> bool:
        """Tell whether a link to a URL makes a page of the crawl.

        What a page needs, such as its pictures, is refused by a rule that matches it alone. What is
        outside of the site is accepted by a rule that matches it alone.
        """
        if self.accepts_all and not is_outside:
            return True
        rule = self._accept.of(url)
        if rule is None:
            return not is_outside and (is_needed or self.ruleset.accept)
        return bool(rule.accept)

    def skips(self, url: str) -> bool:
        """Tell whether the page of a URL is set aside when it is its turn."""
        if self.skips_none:
            return False
        rule = self._skip.of(url)
        return rule is not None and bool(rule.skip)

    def user_agent(self, url: str) -> str | None:
        """Return the User-Agent with which a URL is asked for; None: the project's."""
        rule = self._user_agent.of(url)
        return None if rule is None else rule.user_agent

    def hook(self, url: str) -> str | None:
        """Return the name of the hook that the request for a URL is given to; None: of none."""
        rule = self._hook.of(url)
        return None if rule is None else rule.hook

    def decide(self, url: str) -> Decision:
        """Return all that the rules say of a URL, for people who ask why."""
        chosen = (self._accept, self._skip, self._user_agent, self._hook)
        places = {one.setting: one.place_of(url) for one in chosen}
        return Decision(
            accept=self.accepts(url),
            skip=self.skips(url),
            user_agent=self.user_agent(url),
            hook=self.hook(url),
            by={setting: place for setting, place in places.items() if place is not None},
        )


compiled = lru_cache(maxsize=2)(CompiledRules)
"""Returns compiled rules, those that were asked for last without compiling them anew."""


def is_available() -> bool:
    """Tell whether rules can be compiled here: google-re2 is installed."""
    return find_spec("re2") is not None


class _Chosen:
    """The rules of one setting: of those that match a URL the last one is chosen."""

    def __init__(self, ruleset: Ruleset, setting: Setting) -> None:
        places = [
            place
            for place, one in enumerate(ruleset.rules, start=1)
            if getattr(one, setting) is not None
        ]
        self.setting = setting
        self.rules: list[PageRule] = [ruleset.rules[place - 1] for place in places]
        self._places = places
        self._match = _matcher(self.rules, setting)

    def is_always(self, value: bool) -> bool:
        """Tell whether no rule says anything but a value."""
        return all(getattr(one, self.setting) is value for one in self.rules)

    def of(self, url: str) -> PageRule | None:
        """Return the rule that counts for a URL."""
        place = self._index(url)
        return None if place is None else self.rules[place]

    def place_of(self, url: str) -> int | None:
        """Return the number of that rule among all, from 1."""
        place = self._index(url)
        return None if place is None else self._places[place]

    def _index(self, url: str) -> int | None:
        """Return the place of that rule among these, from 0."""
        if self._match is None:
            return None
        plain = (url.partition("#")[0] if "#" in url else url).encode(errors="replace")
        found = self._match(plain)
        if found:
            last = max(found)
            return last - 1 if last else None
        # The set ran out of memory, which it does not say. One by one takes longer, and is right.
        last_first = range(len(self.rules) - 1, -1, -1)
        matching = (place for place in last_first if self._each[place].search(plain) is not None)
        return next(matching, None)

    @cached_property
    def _each(self) -> list[Any]:
        """Its patterns by themselves."""
        re2 = _re2()
        return [re2.compile(one.match.encode(), _options(re2)) for one in self.rules]


class AnyPattern:
    """Patterns of which one is to match a URL, in as many sets as have room for them."""

    def __init__(self, patterns: tuple[str, ...]) -> None:
        self._sets = tuple(_sets(patterns))

    def matches(self, url: str) -> bool:
        """Tell whether one of them matches; what cannot be compiled by itself matches nothing."""
        return any(one.skips(url) for one in self._sets)


any_of = lru_cache(maxsize=2)(AnyPattern)
"""Returns compiled patterns, those that were asked for last without compiling them anew."""


def _sets(patterns: tuple[str, ...]) -> Iterator[CompiledRules]:
    rules = tuple(PageRule(match=one, skip=True) for one in patterns)
    try:
        yield CompiledRules(Ruleset(rules=rules))
    except OperationError:
        half = len(patterns) // 2
        if half:
            yield from _sets(patterns[:half])
            yield from _sets(patterns[half:])


def _matcher(rules: Sequence[PageRule], setting: Setting) -> Callable[[bytes], list[int]] | None:
    """Return what tells which of the rules match a text, numbered from 1; 0 always does."""
    if not rules:
        return None
    re2 = _re2()
    found = re2.Set.SearchSet(_options(re2))
    found.Add(_ALWAYS)
    for rule in rules:
        try:
            found.Add(rule.match)
        except re2.error:
            raise _NoPatternError from None
    try:
        found.Compile()
    except re2.error:
        raise OperationError(
            f"the patterns of all rules that say {setting.replace('_', ' ')} are too large "
            "together: write fewer counted repetitions such as {1,500}, or fewer rules"
        ) from None
    match: Callable[[bytes], list[int]] = found._set.Match  # noqa: SLF001 - its wrapper is slower
    return match


class _NoPatternError(Exception):
    """A pattern cannot be compiled."""


def _faults(ruleset: Ruleset) -> Iterator[str]:
    """Yield what is wrong with each pattern that cannot be compiled, and what to write."""
    re2 = _re2()
    for place, rule in enumerate(ruleset.rules, start=1):
        said = "it is too large"
        try:
            alone = re2.Set.SearchSet(_options(re2))
            alone.Add(rule.match)
        except re2.error:
            try:
                re2.compile(rule.match, _options(re2))
            except re2.error as error:
                why = error.args[0] if error.args else said
                said = why.decode(errors="replace") if isinstance(why, bytes) else str(why)
            yield f"rule {place}: {rule.match!r:.200} is no pattern: {said}{_hint(said)}"


def _hint(said: str) -> str:
    """Return what to write in the place of what RE2 does not have."""
    if said.startswith(_LOOKAROUND):
        return (
            ". RE2 has no lookaround. The last rule that matches counts, so write two: one for "
            "all, and after it one for what is excepted"
        )
    if said.startswith("invalid escape sequence: \\") and said[-1:].isdigit():
        return ". RE2 has no backreferences, as it takes linear time for any URL"
    if said.startswith("invalid repetition size"):
        return ". A part may be repeated 1,000 times at most; write + or * where more is meant"
    return ""


def _options(re2: Any) -> Any:
    options = re2.Options()
    options.max_mem = _MOST_MEMORY
    options.log_errors = False
    options.never_capture = True
    return options


def _re2() -> Any:
    try:
        return import_module("re2")  # an extra
    except ImportError:
        raise ConfigurationError(
            "rules take google-re2, which is not installed here: pip install "
            "'scrapy-itemgraph[rules]'"
        ) from None
