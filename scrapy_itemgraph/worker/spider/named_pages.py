"""Pages of plain callbacks that somebody names: which request is meant, and which callback."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scrapy import Request, Spider

from scrapy_itemgraph.exceptions import NotFoundError, OperationError
from scrapy_itemgraph.model import next_commands, schemes, tasks
from scrapy_itemgraph.model.request_operations import EnqueueRequest
from scrapy_itemgraph.model.simulations import SimulationPlan
from scrapy_itemgraph.serialize import requests
from scrapy_itemgraph.tools.wording import closest
from scrapy_itemgraph.worker import scrapy_internals
from scrapy_itemgraph.worker.spider import request_builder
from scrapy_itemgraph.worker.spider.callbacks import task_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy_itemgraph.model.simulations import StoredPage
    from scrapy_itemgraph.worker.spider.callbacks import CallbackTasks
    from scrapy_itemgraph.worker.spider.request_ids import RequestIds

_DEFAULT = "parse"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedPage:
    """A page by its URL, or by a name of its item; and the callback, unless it is its own.

    With `is_saved` it is simulated on a saved page, and not downloaded.
    """

    name: str
    callback: str | None
    is_saved: bool
    callbacks: CallbackTasks
    identities: RequestIds

    @property
    def names(self) -> Sequence[str]:
        """By which names the graph may have it: what was given, and that of a GET request."""
        request = self._get()
        return (self.name,) if request is None else (self.name, self.identities.name(request))

    @property
    def shown(self) -> str:
        """What tables show of it, as far as it is known."""
        return self.name

    def plan(self, found: StoredPage | None) -> SimulationPlan:
        """Return the simulation of a page that was found, or of one that nobody has seen.

        Raises:
            NotFoundError: there is no such callback.
            OperationError: it is the item of a task, or has several callbacks.

        """
        if found is None:
            return self._of_new()
        name = self._callback(found)
        return SimulationPlan(
            task=self.callbacks.task_name(name),
            item=found.item,
            request=_led(found, name, self.callbacks),
            is_saved=self.is_saved,
        )

    def _get(self) -> Request | None:
        """Return a GET request for what was given; None where it is no URL."""
        if not schemes.is_web(self.name):
            return None
        try:
            return Request(self.name)
        except ValueError:
            return None

    def _of_new(self) -> SimulationPlan:
        request = self._get()
        if request is None:  # the graph says what is written alike
            return SimulationPlan(task=self._checked(self.callback or _DEFAULT), item=self.name)
        name = self.callback or callback_of_url(request.url, self.callbacks)
        made = made_page(self._checked(name), request, self.callbacks, self.identities)
        task = self.callbacks.task_name(name)
        return SimulationPlan(task=task, item=made.id, made=made, is_saved=self.is_saved)

    def _callback(self, found: StoredPage) -> str:
        """Return the name of the callback that a stored page goes to, or is to go to."""
        if self.callback is not None:
            return self._checked(self.callback)
        known = [tasks.callback_of_tag(tag) for tag in found.tags if tasks.is_callback_tag(tag)]
        if len(known) == 1:
            return known[0]
        if known:
            raise OperationError(
                f"the page {self.name!r} goes to several callbacks: {', '.join(sorted(known))}; "
                "say which with --callback"
            )
        raise OperationError(self._of_task(found))

    def _of_task(self, found: StoredPage) -> str:
        """Say how a task's item is simulated."""
        declared = self.callbacks.declared.values()
        names = [one.name for one in declared if set(one.tags) & found.tags.keys()]
        spider = self.callbacks.spider.name
        task = names[0] if names else "TASK"
        typed = next_commands.simulate(spider, task, found.item)
        return (
            f"the item {found.item!r} is no page of a plain callback; simulate a task of it "
            f"({', '.join(names) or 'none has its tags'}): {typed}"
        )

    def _checked(self, name: str) -> str:
        check_callback(
            name,
            self.callbacks,
            of_task=next_commands.simulate(self.callbacks.spider.name, name, self.name),
        )
        return name


def check_callback(name: str, callbacks: CallbackTasks, *, of_task: str) -> None:
    """Check that a spider has a plain callback; `of_task` is what runs a task instead.

    Raises:
        NotFoundError: it has none of this name.
        OperationError: it is a task.

    """
    spider = callbacks.spider
    if not callbacks.has(name):
        own = [one for one in dir(type(spider)) if requests.has_method(spider, one)]
        known = [*callbacks.rules.names, *(one for one in own if _is_of_project(spider, one))]
        near = closest(name, {*known, *callbacks.declared})
        listed = ", ".join(dict.fromkeys(known)) or "none"
        raise NotFoundError(
            f"the spider {spider.name!r} has no callback {name!r}{near}; it has {listed}"
        )
    if name not in callbacks.rules.names and task_of(getattr(spider, name)) is not None:
        raise OperationError(f"{name!r} is a @task, and no plain callback: {of_task}")


def _is_of_project(spider: Spider, name: str) -> bool:
    """Tell whether a method is not Scrapy's own."""
    module = getattr(getattr(type(spider), name), "__module__", None) or ""
    return module.partition(".")[0] != "scrapy"


def callback_of_url(url: str, callbacks: CallbackTasks) -> str:
    """Return the callback that the spider's own code gives a page, as far as its URL says.

    That is the one of a `CrawlSpider`'s first rule that would follow a link to it, else `parse`.

    Raises:
        NotFoundError: the spider has no `parse`.

    """
    spider = callbacks.spider
    if url not in (getattr(spider, "start_urls", None) or ()):
        rules = scrapy_internals.rules_of(spider)
        for name, rule in zip(callbacks.rules.names, rules, strict=True):
            matches: Any = getattr(rule.link_extractor, "matches", None)
            if matches is not None and matches(url):
                return name
    default = scrapy_internals.default_callback(spider)
    if getattr(default, "__func__", None) is Spider.parse:
        raise NotFoundError(
            f"the graph does not have the page {url}, and the spider {spider.name!r} has no "
            "parse(); say which callback is to get it: --callback NAME"
        )
    return _DEFAULT


def made_page(
    name: str, request: Request, callbacks: CallbackTasks, identities: RequestIds
) -> EnqueueRequest:
    """Return what makes the page of a callback, by the name that a crawl gives it."""
    spider, rules = callbacks.spider, callbacks.rules
    if name in rules.names:
        callback = getattr(spider, scrapy_internals.RULES_CALLBACK)
        meta = {**request.meta, "rule": rules.names.index(name)}
        request = request.replace(callback=callback, meta=meta)
    else:
        request = request.replace(callback=None if name == _DEFAULT else getattr(spider, name))
    return EnqueueRequest(
        id=identities.name(request),
        tags=(tasks.callback_tag(name),),
        data=request_builder.request_data(request, spider),
    )


def _led(found: StoredPage, name: str, callbacks: CallbackTasks) -> dict[str, Any] | None:
    """Return a stored request led to another callback; None if it goes there by itself."""
    given = found.data.get("request")
    stored = given if isinstance(given, dict) else {}
    now = stored.get("callback", _DEFAULT)
    # What is of a rule is led to another one, or past them, when the request is made.
    if given is stored and now in {name, scrapy_internals.RULES_CALLBACK}:
        return None
    is_of_rule = name in callbacks.rules.names
    return {**stored, "callback": scrapy_internals.RULES_CALLBACK if is_of_rule else name}
