"""What the rules of a crawl do to requests: links that are refused, user agents, and hooks.

What they change of a request is never stored with it: the rules of its next claim decide anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scrapy.utils.misc import load_object

from scrapy_itemgraph.exceptions import ConfigurationError, ItemGraphError
from scrapy_itemgraph.model.rules import Setting
from scrapy_itemgraph.tools.wording import closest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scrapy import Request, Spider
    from scrapy.statscollectors import StatsCollector

    from scrapy_itemgraph.model.rule_matching import CompiledRules
    from scrapy_itemgraph.worker.executions.execution import Execution, Leg

NEEDED = "itemgraph_needed"
"""In a request's meta: it is for what a page needs, such as a picture, and not for a link."""

OUTSIDE = "itemgraph_outside"
"""In a request's meta: it is for a link that only a rule which accepts it makes a page."""

_AGENT = "User-Agent"
_HOOKS = "ITEMGRAPH_HOOKS"


@dataclass(slots=True, eq=False, repr=False)
class PageRules:
    """Keeps requests to the rules of the execution that they are of; `hooks` are by name."""

    spider: Spider
    stats: StatsCollector
    hooks: Mapping[str, Callable[[Request, Spider], Any]]

    def takes(self, request: Request, leg: Leg, *, continues: bool) -> bool:
        """Tell whether a request that was yielded is taken in, and count it if it is not.

        One that `continues` its execution is, as its rules have it sent. A page that yields its own
        URL once more is none that was found.
        """
        rules = leg.execution.rules
        if rules is None and OUTSIDE not in request.meta:
            return True
        if continues:
            self.prepare(request, leg.execution)
            return True
        if rules is None:
            self.refused(leg.execution)
            return False
        own = leg.request
        is_needed, is_outside = NEEDED in request.meta, OUTSIDE in request.meta
        is_own = own is not None and own.url == request.url
        if rules.accepts(request.url, is_needed=is_needed, is_outside=is_outside) or is_own:
            return True
        self.refused(leg.execution)
        return False

    def refused(self, execution: Execution, links: int = 1) -> None:
        """Count links of an execution that its rules refuse."""
        execution.links_refused += links
        self.stats.inc_value("itemgraph/links_refused", links)

    def prepare(self, request: Request, execution: Execution) -> None:
        """Give a request that goes out the user agent of its rules, and give it to their hook.

        An ItemGraphError says which hook is none of the project, or that it returned something.
        """
        rules = execution.rules
        if rules is None or rules.asks_plainly:
            return
        agent = rules.user_agent(request.url)
        if agent is not None:
            execution.agents = (request.headers.get(_AGENT), agent.encode())
            request.headers[_AGENT] = agent
        name = rules.hook(request.url)
        if name is not None:
            self._call(name, request, rules)

    def _call(self, name: str, request: Request, rules: CompiledRules) -> None:
        hook = self.hooks.get(name)
        if hook is None:
            place = rules.decide(request.url).by[Setting.HOOK]
            raise ItemGraphError(
                f"rule {place} of the crawl calls the hook {name!r}, and {_HOOKS} has none of this "
                f"name{closest(name, self.hooks)}: add it there, or change the rule"
            )
        found = hook(request, self.spider)
        if found is not None:
            raise ItemGraphError(
                f"the hook {name!r} returned {found!r:.80}; it changes the request that it is "
                "given, such as its headers and meta, and returns nothing"
            )


def refuses_target(request: Request, execution: Execution) -> bool:
    """Tell whether the rules of a page would not have the URL that its redirect leads to.

    A rule skips the URL, or refuses links to it. Refusals of links do not count where the rules
    refuse the page itself, or where it is a task's: a person named it, and `a.example` may lead to
    `www.a.example`.
    """
    rules = execution.rules
    if rules is None:
        return False
    if rules.skips(request.url):
        return True
    if execution.is_of_task or rules.accepts(request.url, is_needed=True):
        return False
    begun = request.meta.get("redirect_urls", (request.url,))[0]
    return rules.accepts(begun, is_needed=True)


def without_rules(request: Request, execution: Execution) -> Request:
    """Return a request as it is stored: with its own user agent, and not the one of the rules."""
    if execution.agents is None:
        return request
    own, given = execution.agents
    if request.headers.get(_AGENT) != given:
        return request
    request = request.copy()
    del request.headers[_AGENT]
    if own is not None:
        request.headers[_AGENT] = own
    return request


def loaded_hooks(given: Mapping[str, Any]) -> dict[str, Callable[[Request, Spider], Any]]:
    """Return the hooks of ITEMGRAPH_HOOKS, imported.

    Raises:
        ConfigurationError: one cannot be imported, or is no function.

    """
    hooks = {}
    for name, path in given.items():
        try:
            hooks[name] = load_object(path)
        except (ImportError, NameError, ValueError, TypeError) as error:
            raise ConfigurationError(f"{_HOOKS}: {name!r} cannot be imported: {error}") from None
        if not callable(hooks[name]):
            raise ConfigurationError(
                f"{_HOOKS}: {name!r} is {path!r:.200}, which is no function of (request, spider)"
            )
    return hooks
