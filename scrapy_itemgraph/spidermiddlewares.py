"""The first spider middleware: takes operations, stamps requests, and holds the crawl open."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import scrapy
from scrapy import Request
from scrapy.exceptions import CloseSpider
from scrapy.utils import display
from scrapy.utils.asyncgen import as_async_generator

from scrapy_itemgraph.exceptions import DatabaseUnavailableError, SessionExpired
from scrapy_itemgraph.model import tasks
from scrapy_itemgraph.model.blobs import Content
from scrapy_itemgraph.model.operations import Operation
from scrapy_itemgraph.model.try_again import TryAgain
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.tools import logs
from scrapy_itemgraph.worker import scrapy_internals
from scrapy_itemgraph.worker.executions.context import ItemContext
from scrapy_itemgraph.worker.executions.execution import current_leg
from scrapy_itemgraph.worker.spider import callbacks
from scrapy_itemgraph.worker.worker import WorkerComponent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
    from typing import Self

    from scrapy.crawler import Crawler
    from scrapy.http import Response


logger = logs.logger(__name__)


class ItemGraphSpiderMiddleware(WorkerComponent):
    """Stands between the engine and everything that callbacks yield."""

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Pass on what `start()` yields, then keep the spider open until nothing is left to do.

        After that Scrapy asks the handlers of `spider_idle`, and the spider may stay open.
        """
        worker = self._worker
        error: Exception | None = None
        try:
            async for kept in worker.from_start(start):
                yield kept
        except Exception as raised:
            if isinstance(raised, CloseSpider) and scrapy.version_info >= (2, 18):
                await worker.until_started()
                raise  # The engine closes the spider; an older one takes it for an error.
            error = raised  # raised at once it would leave the graph's work undone
            worker.start_failed(raised)
        await worker.until_nothing_is_left()
        if error is not None:
            raise error

    def process_spider_output(self, response: Response, result: Iterable[Any]) -> Iterable[Any]:
        """Do the same where Scrapy before 2.16 wants it without a loop.

        Nothing here waits, but for turns of the loop, which cannot be had: as with Scrapy alone a
        plain callback has the loop to itself until it yields a request or an item.
        """
        outputs = self.process_spider_output_async(response, as_async_generator(result))
        while True:
            step = anext(outputs).__await__()
            try:
                while True:
                    step.send(None)
            except StopIteration as output:
                yield output.value
            except StopAsyncIteration:
                return

    async def process_spider_output_async(
        self, response: Response, result: AsyncIterator[Any]
    ) -> AsyncIterator[Any]:
        """Take the operations, and pass on the rest; of a task's callback when it has ended."""
        request = response.request
        assert request is not None
        leg = current_leg.get()
        assert leg is not None
        callback = callbacks.callback_of(request, self._worker.spider)
        async for output in self._worker.parts.spider_output.taken(leg, callback, result, response):
            yield output

    def process_spider_exception(
        self,
        response: Response,
        exception: Exception,
    ) -> list[Any] | None:
        """Take note of an error that nobody has handled; what gives work back is none."""
        leg = current_leg.get()
        if leg is not None:
            self._worker.parts.spider_output.broke(leg, exception, response)
            is_none = isinstance(exception, SessionExpired | DatabaseUnavailableError | TryAgain)
            if is_none and leg.execution.outcome in {Outcome.RELEASED, Outcome.RETRY}:
                return []
        return None


class EventLoopSpiderMiddleware(WorkerComponent):
    """The one next to the spider: the loop turns while a callback yields."""

    # Older ones take a plain generator without a loop, and have others look once more at an error
    # for each middleware that has this.
    if scrapy.version_info >= (2, 16):

        async def process_spider_output(
            self,
            response: Response,
            result: AsyncIterator[Any],
        ) -> AsyncIterator[Any]:
            """Let the loop turn, also while others drop all that a callback yields."""
            leg = current_leg.get()
            assert leg is not None
            outputs = self._worker.parts.spider_output.in_turns(leg.execution, response, result)
            async for output in outputs:
                yield output


class PreviewSpiderMiddleware:
    """Under `scrapy parse`, `check` and `shell`: a blank item, no database, no operations."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._has_tasks = bool(tasks.discover(crawler.spidercls))

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the middleware of a crawler."""
        return cls(crawler)

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Give start requests a blank item where their callback wants one."""
        async for output in start:
            if not isinstance(output, Operation):
                yield self._with_item(output)

    async def process_spider_output(
        self,
        response: Response,  # noqa: ARG002 - Scrapy's signature
        result: AsyncIterator[Any],
    ) -> AsyncIterator[Any]:
        """Give follow-ups a blank item, and drop operations, which have no graph to go to."""
        async for output in result:
            if not isinstance(output, Operation):
                yield self._with_item(output)

    def _with_item(self, output: Any) -> Any:
        if isinstance(output, Request):
            spider = self._crawler.spider
            assert spider is not None
            callback = scrapy_internals.parsed_callback(output) or callbacks.callback_of(
                output, spider
            )
            if isinstance(callback, str):
                callback = getattr(spider, callback, None)
            if self._has_tasks and callbacks.takes_item(callback):
                task = callbacks.task_of(callback)
                output.cb_kwargs.setdefault("item", ItemContext.blank(task.name if task else ""))
        return output


# What `scrapy parse` shows of operations

_HEADING = "# Operations "
_RULE = "-" * 63  # to the end of Scrapy's own headings
_PATCHED = "_itemgraph_operations"  # on the command: the operations of each level


def show_operations() -> None:
    """Have the command that runs print operations by class, and not among the scraped items.

    Scrapy has no hook for that: it takes what the callback yields before any middleware does.
    """
    module = sys.modules.get("scrapy.commands.parse")
    if module is None or hasattr(module.Command, _PATCHED):
        return
    command = module.Command
    taken: dict[int, list[Operation]] = defaultdict(list)
    setattr(command, _PATCHED, taken)
    show = command.print_items

    def sort_others(
        sort: Any, own: Any, spider_output: Iterable[Any], opts: Any, depth: int, *rest: Any
    ) -> Any:
        outputs = list(spider_output)
        taken[depth] += [one for one in outputs if isinstance(one, Operation)]
        others = [one for one in outputs if not isinstance(one, Operation)]
        return sort(own, others, opts, depth, *rest)

    @functools.wraps(show)
    def show_all(self: Any, lvl: int | None = None, colour: bool = True) -> None:
        show(self, lvl, colour)
        levels = taken.values() if lvl is None else [taken[lvl]]
        for line in _lines([one for level in levels for one in level], colour=colour):
            print(line)  # noqa: T201 - as the command does

    scrapy_internals.around_parsed(command, sort_others)
    command.print_items = show_all


def _lines(operations: Sequence[Operation], *, colour: bool) -> Iterator[str]:
    if not operations:
        return
    yield f"{_HEADING} {_RULE}"
    by_class: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for one in operations:
        by_class[type(one).__name__].append(given_fields(one))
    for name, group in by_class.items():
        yield f"## {name} ({len(group):,})"
        yield display.pformat(group, colorize=colour).rstrip("\n")


def given_fields(operation: Operation) -> dict[str, Any]:
    """Return the fields of an operation that differ from their defaults."""
    fields = [one for one in dataclasses.fields(operation) if one.init]
    given = {one.name: getattr(operation, one.name) for one in fields}
    shown = {one.name: given[one.name] for one in fields if given[one.name] != _default(one)}
    return {name: str(one) if isinstance(one, Content) else one for name, one in shown.items()}


def _default(field: dataclasses.Field[Any]) -> Any:
    is_made = field.default_factory is not dataclasses.MISSING
    return field.default_factory() if is_made else field.default  # type: ignore[operator]
