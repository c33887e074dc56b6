"""Callbacks: what a request's own is, what it takes and gives back, and plain ones' tasks."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from scrapy.utils.spider import iterate_spider_output

from scrapy_itemgraph.model import tasks
from scrapy_itemgraph.model.operations import AddTag, Expire, RemoveTag, StoreResult
from scrapy_itemgraph.serialize import requests
from scrapy_itemgraph.worker import scrapy_internals
from scrapy_itemgraph.worker.spider import methods
from scrapy_itemgraph.worker.spider.crawl_rules import CrawlRules

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
    from uuid import UUID

    from scrapy import Request, Spider

    from scrapy_itemgraph.model.operations import Operation
    from scrapy_itemgraph.model.tasks import Task
    from scrapy_itemgraph.model.work import Claim


@dataclass(slots=True, eq=False, repr=False)
class CallbackTasks:
    """Makes tasks of plain callbacks, and knows those that the graph has still to be told of."""

    spider: Spider
    declared: Mapping[str, Task]  # the spider's own, by name
    options: Mapping[str, Mapping[str, Any]]  # ITEMGRAPH_CALLBACKS
    _unregistered: dict[str, Task] = field(default_factory=dict)
    rules: CrawlRules = field(init=False)
    _sources: Mapping[str, UUID] = field(init=False)

    def __post_init__(self) -> None:
        self.rules = CrawlRules(self.spider)
        self._sources = methods.sources_of(self.spider, self.rules.callbacks())

    def name_of(self, request: Request) -> str:
        """Return the name of the callback that gets the response of a request, or of its rule's.

        Raises:
            UnstorableError: it is no method of the spider.

        """
        return self.rules.name_of(request) or requests.callback_name(request, self.spider)

    def task_of(self, name: str) -> Task:
        """Return the task of a plain callback."""
        return tasks.of_named_callback(name, self.options)

    def task_name(self, name: str) -> str:
        """Return the name of a plain callback's task, beside a @task of the same name."""
        return tasks.SET_ASIDE + name if name in self.declared else name

    def has(self, name: str) -> bool:
        """Tell whether the spider has the callback of a task that any worker registered."""
        method = name.removeprefix(tasks.SET_ASIDE)
        return method in self.rules.names or requests.has_method(self.spider, method)

    def source_of(self, name: str) -> UUID | None:
        """Return a digest of the code of a task or plain callback, as far as there is one."""
        return self._sources.get(method_of(self.declared, name))

    def code_of(self, task: Task) -> str:
        """Return a digest of the code by which a task makes its results, or tells changes."""
        found = self.source_of(task.name), self._sources.get(task.unchanged_if or "")
        return " ".join(str(one) for one in found if one is not None)

    def meet(self, name: str, registered: Collection[str]) -> str:
        """Return the name of a plain callback's task, which will be there at the next commit."""
        aside = tasks.SET_ASIDE + name
        if name in self.declared or aside in registered:
            name = aside
        if name not in registered and name not in self._unregistered:
            self._unregistered[name] = self.task_of(name)
        return name

    def moves_of(
        self, request: Request, claim: Claim, registered: Collection[str]
    ) -> tuple[Operation, ...]:
        """Return what has a page go by the name of its rule's callback, once it is done.

        Nothing unless it was stored before rules had names; its result goes with it.
        """
        name = self.rules.name_of(request)
        if claim.task != scrapy_internals.RULES_CALLBACK or name is None:
            return ()
        task = self.meet(name, registered)
        return (
            RemoveTag(tasks.callback_tag(claim.task)),
            AddTag(tasks.callback_tag(task)),
            StoreResult({}, id=claim.item.id, task=task),
            Expire(task=claim.task),
        )

    def unregistered(self) -> Sequence[Task]:
        """Return the tasks that the graph does not have; they stay so until `registered`."""
        return list(self._unregistered.values())

    def registered(self, new: Sequence[Task]) -> None:
        """Take note that the graph has these tasks now."""
        for task in new:
            self._unregistered.pop(task.name, None)


def method_of(declared: Mapping[str, Task], name: str) -> str:
    """Return the name of the method of a task, declared or of a plain callback."""
    task = declared.get(name)
    return task.method if task else name.removeprefix(tasks.SET_ASIDE)


def callback_of(request: Request, spider: Spider) -> Any:
    """Return the user's callback that will get the response of `request`."""
    if request.callback is not None:
        return request.callback
    return scrapy_internals.default_callback(spider)


def task_of(callback: Any) -> Task | None:
    """Return the task that a callback is, if it is one."""
    return getattr(callback, tasks.MARK, None)


def takes_item(callback: Any) -> bool:
    """Tell whether a callback's signature asks for the `item`."""
    function = getattr(callback, "__func__", callback)
    try:
        return _takes_item(function)
    except TypeError:  # not hashable
        return _takes_item.__wrapped__(function)


@lru_cache(maxsize=1000)
def _takes_item(function: Any) -> bool:
    try:
        parameter = inspect.signature(function).parameters.get("item")
    except (TypeError, ValueError):
        return False
    return parameter is not None and parameter.kind in {
        parameter.POSITIONAL_OR_KEYWORD,
        parameter.KEYWORD_ONLY,
    }


def login_of(spider: Spider) -> Callable[[], Any] | None:
    """Return the spider's `login()`, if it takes no arguments; else it is a callback."""
    login = getattr(spider, "login", None)
    if not callable(login):
        return None
    return login if _takes_nothing(getattr(login, "__func__", login)) else None


@lru_cache(maxsize=100)
def _takes_nothing(function: Callable[..., Any]) -> bool:
    parameters = list(inspect.signature(function).parameters.values())
    needed = [
        p.name for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD
    ]
    return needed in ([], ["self"])


async def iterate(
    output: Any, *, each: Callable[[Any], Iterable[Any]] = iterate_spider_output
) -> AsyncIterator[Any]:
    """Iterate over what a method of the spider gave back, plain or asynchronous.

    `each` makes an iterable of something that is not asynchronous.
    """
    if inspect.isawaitable(output):
        output = await output
    if hasattr(output, "__aiter__"):
        async for part in output:
            yield part
    else:
        for part in each(output):
            yield part
