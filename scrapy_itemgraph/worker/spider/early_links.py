"""Links that are taken or filtered next to the callback that yields them.

Of a known link nothing is left but a count, and of a new one what stores it. Scrapy's own spider
middlewares give all links of a response to one origin the same depth, referer and priority, and
its offsite filter the same answer. So only the first of them goes through these; the others are
stored as it was. Where anybody else could see a link or hear of it, each goes the whole way.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from scrapy import Request
from scrapy.spidermiddlewares.referer import RefererMiddleware

from scrapy_itemgraph.model import item_names
from scrapy_itemgraph.model.request_operations import EnqueueRequest, Pattern
from scrapy_itemgraph.serialize import requests
from scrapy_itemgraph.worker.spider.page_rules import NEEDED, OUTSIDE
from scrapy_itemgraph.worker.spider.validation import CHANGED_AT, TTL

if TYPE_CHECKING:
    from collections.abc import Hashable

    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from scrapy_itemgraph.worker.executions.execution import Execution
    from scrapy_itemgraph.worker.spider.duplicates import Duplicates
    from scrapy_itemgraph.worker.spider.enqueuer import Enqueuer
    from scrapy_itemgraph.worker.spider.page_rules import PageRules
    from scrapy_itemgraph.worker.spider.request_ids import RequestIds

_OWN, _SCRAPYS = "scrapy_itemgraph.", "scrapy."
# In a request's meta: somebody has to look at it.
_MEANINGFUL = frozenset({TTL, CHANGED_AT, OUTSIDE, "depth_reset", "referrer_policy"})
_MOST_PATTERNS = 100  # a page may link to any number of origins


class EarlyLinks:
    """Tells which responses have plain links, and which requests are plain."""

    def __init__(
        self,
        crawler: Crawler,
        identities: RequestIds,
        duplicates: Duplicates,
        enqueuer: Enqueuer,
        page_rules: PageRules,
        *,
        has_tasks: bool,
    ) -> None:
        self._crawler = crawler
        self._duplicates = duplicates
        self._has_tasks = has_tasks
        self._longest = crawler.settings.getint("URLLENGTH_LIMIT")
        self._has_depth_limit = bool(crawler.settings.getint("DEPTH_LIMIT"))
        self.identities = identities
        self.enqueuer = enqueuer
        self.page_rules = page_rules

    def of(self, execution: Execution, response: Response) -> PageLinks | None:
        """Return what takes the links of a response; None if each has to go the whole way."""
        if execution.is_of_task or execution.is_login:
            return None  # its requests are its own
        if self._has_depth_limit and not execution.tracks_depth:
            return None  # Scrapy looks how deep each is
        if not self._are_middlewares_scrapys or not self._duplicates.are_unheard:
            return None
        return PageLinks(self, execution, response)

    @cached_property
    def _are_middlewares_scrapys(self) -> bool:
        settings = self._crawler.settings
        if self._has_tasks:  # a request to a task is an error, known or not
            return False
        if settings.getbool("DEPTH_STATS_VERBOSE"):
            return False
        middlewares: list[Any] = list(self._crawler.engine.scraper.spidermw.middlewares)
        classes = [type(one) for one in middlewares]
        for one in middlewares:
            if isinstance(one, RefererMiddleware):
                classes += [one.default_policy, *one.policies.values()]
        return all(cls.__module__.startswith((_OWN, _SCRAPYS)) for cls in classes)

    def is_plain(self, output: Any) -> bool:
        """Tell whether an output is a request of which nothing but its URL matters."""
        return (
            type(output) is Request
            and not output.dont_filter
            and self.identities.is_plain(output)
            and _MEANINGFUL.isdisjoint(output.meta)
        )

    @property
    def may_filter(self) -> bool:
        """Whether of known links nothing is told but how many there are; not of the first one."""
        return self._duplicates.are_only_counted

    def kind(self, request: Request) -> Hashable | None:
        """Return what decides all that is stored of a plain link but its URL; None if more does."""
        url = request.url
        if (self._longest and len(url) > self._longest) or not requests.has_plain_url(request):
            return None
        like = requests.likeness(request)
        # Up to its path; one without a path goes the whole way.
        end = url.find("/", url.find("://") + 3)
        return None if like is None or end < 0 else (url[:end], *like)

    def count(self, *, taken: int, filtered: int, response: Response) -> None:
        """Count links as Scrapy does."""
        stats = self._crawler.stats
        assert stats is not None
        if taken:
            stats.inc_value("scheduler/enqueued", taken)
        if filtered:
            stats.inc_value("dupefilter/filtered", filtered)
        if taken or filtered:
            stats.max_value("request_depth_max", response.meta.get("depth", 0) + 1)


class PageLinks:
    """Takes the plain links of one response."""

    __slots__ = (
        *("_early", "_execution", "_filtered", "_first", "_patterns", "_refused", "_response"),
        *("_rules", "_taken"),
    )

    def __init__(self, early: EarlyLinks, execution: Execution, response: Response) -> None:
        self._early = early
        self._execution = execution
        self._response = response
        self._patterns: dict[Hashable, Pattern] = {}
        self._first: tuple[Hashable, str] | None = None  # the kind and the name of the last output
        self._taken = self._filtered = self._refused = 0
        rules = execution.rules
        self._rules = None if rules is None or rules.accepts_all else rules

    def takes(self, output: Any) -> bool:
        """Take an output, or filter it, if it is a plain link; else it has to go the whole way."""
        early, execution = self._early, self._execution
        self._first = None
        if not early.is_plain(output):
            return False
        if self._rules is not None and not self._rules.accepts(output.url):
            if output.url == self._response.url or output.meta.get(NEEDED):
                return False
            self._refused += 1
            execution.count_output()
            return True
        name = early.identities.name(output)
        if early.enqueuer.is_known(name, execution):
            if not early.may_filter:
                return False
            self._filtered += 1
            if execution.links is not None:
                execution.links.add(item_names.hex_key(name))
        else:
            kind = early.kind(output)
            pattern = self._patterns.get(kind)
            if pattern is None:
                self._first = None if kind is None else (kind, name)
                return False
            early.enqueuer.take_alike(pattern, name, output.url, execution)
            self._taken += 1
        execution.count_output()
        return True

    def passed(self) -> None:
        """Learn from the output that was not taken, now that it has gone the whole way."""
        if self._first is None:
            return
        kind, name = self._first
        found = self._execution.discovered.get(name)
        if isinstance(found, EnqueueRequest) and len(self._patterns) < _MOST_PATTERNS:
            self._patterns[kind] = Pattern(found)

    def end(self) -> None:
        """Count what was taken and filtered."""
        self._early.count(taken=self._taken, filtered=self._filtered, response=self._response)
        if self._refused:
            self._early.page_rules.refused(self._execution, self._refused)
        page = self._execution.page
        if page is not None:
            page.links += self._taken + self._filtered + self._refused
