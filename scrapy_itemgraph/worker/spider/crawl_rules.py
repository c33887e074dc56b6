"""The rules of a `CrawlSpider`, by the names of their callbacks.

Scrapy gives the pages of all rules one callback of its own, and the number of the rule. A number
says nothing once rules were added or moved, so pages are stored, counted and told apart by name:
that of the rule's callback, `follow` where it has none, `lambda` where that has no name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.exceptions import ItemGraphError, UnstorableError
from scrapy_itemgraph.model import tasks
from scrapy_itemgraph.serialize import requests
from scrapy_itemgraph.tools.wording import closest
from scrapy_itemgraph.worker import scrapy_internals
from scrapy_itemgraph.worker.spider import methods

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from scrapy import Request, Spider
    from scrapy.spiders import Rule

    from scrapy_itemgraph.settings import Settings

_NO_NAMES: Sequence[str] = ()


@dataclass(slots=True, eq=False, repr=False)
class CrawlRules:
    """The rules of a spider, which may compile them anew; of any other than a `CrawlSpider` none.

    Rules of one callback have one name. Of other callbacks with the same name, such as two lambdas,
    the second is `lambda.2`.
    """

    spider: Spider
    _rules: Sequence[Rule] = ()
    _names: Sequence[str] = field(default=_NO_NAMES)

    @property
    def names(self) -> Sequence[str]:
        """The name of each rule, by its number."""
        rules = scrapy_internals.rules_of(self.spider)
        if rules is not self._rules or len(rules) != len(self._names):
            self._rules, self._names = rules, _named(self.spider, rules)
        return self._names

    def callbacks(self) -> Mapping[str, Any]:
        """Return the callbacks of rules by name; None where a rule has none."""
        rules = scrapy_internals.rules_of(self.spider)
        return {name: rule.callback for name, rule in zip(self.names, rules, strict=True)}

    def name_of(self, request: Request) -> str | None:
        """Return the name of the rule that a request is of; None if it is of none."""
        if not scrapy_internals.is_of_rules(self.spider, request.callback):
            return None
        number, names = request.meta.get("rule"), self.names
        return names[number] if isinstance(number, int) and 0 <= number < len(names) else None

    def lead(self, request: Request, name: str) -> None:
        """Lead a stored request to the rule of a name, where its number is another rule's by now.

        Where the spider has no such rule any more, but still the callback, it is called by itself.
        What was stored under Scrapy's own name goes by the number.

        Raises:
            ItemGraphError: there is no such rule, and no such callback.

        """
        if not scrapy_internals.is_of_rules(self.spider, request.callback):
            return
        wanted, names = name.removeprefix(tasks.SET_ASIDE), self.names
        if wanted == scrapy_internals.RULES_CALLBACK:
            self._check_number(request)
        elif self.name_of(request) == wanted:
            return
        elif wanted in names:
            request.meta["rule"] = names.index(wanted)
        elif requests.has_method(self.spider, wanted):
            _lead_past_rules(request, getattr(self.spider, wanted))
        else:
            raise ItemGraphError(
                f"no rule of the spider has the callback {wanted!r} any more"
                f"{closest(wanted, names) or '.'} It is that of a stored request; put it back, if "
                "only as another name"
            )

    def with_options(self, settings: Settings) -> Settings:
        """Return settings in which what stands for Scrapy's own name stands for all rules.

        So it was before rules had names; what is said of a rule by its own name wins.
        """
        options = settings.results.callbacks
        of_all = options.get(scrapy_internals.RULES_CALLBACK)
        if of_all is None or not self.names:
            return settings
        callbacks = {**dict.fromkeys(self.names, of_all), **options}
        return settings.but(callbacks=callbacks)

    def _check_number(self, request: Request) -> None:
        number, count = request.meta.get("rule"), len(self.names)
        if isinstance(number, int) and number >= count:
            raise ItemGraphError(
                f"the request was stored for rule {number + 1} of the spider, which has {count} "
                "by now; put the rule back, or delete the item"
            )


def _lead_past_rules(request: Request, callback: Any) -> None:
    """Give a request the callback that no rule has any more, and nothing of another rule."""
    request.callback = callback
    request.meta.pop("rule", None)
    if scrapy_internals.is_rules_errback(getattr(request.errback, "__func__", None)):
        request.errback = None


# Names


def _named(spider: Spider, rules: Sequence[Rule]) -> Sequence[str]:
    taken: dict[str, Any] = {}
    found: list[str] = []
    for rule in rules:
        function = _function(rule.callback)
        free = (
            name
            for name in _candidates(_name(spider, rule.callback))
            if taken.get(name, function) is function and _is_free(spider, name, function)
        )
        name = next(free)
        taken[name] = function
        found.append(name)
    return found


def _name(spider: Spider, callback: Any) -> str:
    if callback is None:
        return methods.FOLLOW
    try:
        return requests.name_of(callback, spider, "callback")
    except UnstorableError:
        name = str(getattr(callback, "__name__", type(callback).__name__)).strip("<>")
        return name if tasks.is_name(name) else "function"


def _candidates(name: str) -> Iterator[str]:
    yield name
    number = 2
    while True:
        yield f"{name}.{number}"
        number += 1


def _is_free(spider: Spider, name: str, function: Any) -> bool:
    """Tell whether no other method of the spider has a name."""
    if not requests.has_method(spider, name):
        return True
    return _function(getattr(spider, name)) is function


def _function(callback: Any) -> Any:
    return getattr(callback, "__func__", callback)
