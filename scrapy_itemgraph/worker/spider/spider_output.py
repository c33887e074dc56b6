"""What callbacks and errbacks give back: operations are taken, requests stamped, items passed."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from itemadapter import is_item
from scrapy import Request
from scrapy.exceptions import CloseSpider
from scrapy.spidermiddlewares.httperror import HttpError
from scrapy.utils.spider import iterate_spider_output
from twisted.python.failure import Failure

from scrapy_itemgraph.exceptions import (
    DatabaseUnavailableError,
    ForeignOutputError,
    ItemGraphError,
    SessionExpired,
)
from scrapy_itemgraph.model.operations import CreateItem, Operation
from scrapy_itemgraph.model.try_again import TryAgain
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.tools.async_tools import Turns
from scrapy_itemgraph.worker.downloads.delay_gate import PostponedError
from scrapy_itemgraph.worker.downloads.request_slots import NO_DOWNLOAD
from scrapy_itemgraph.worker.downloads.revalidation import NotModifiedError, withdraw
from scrapy_itemgraph.worker.executions.execution import Leg, current_leg, request_legs
from scrapy_itemgraph.worker.spider import callbacks, descriptors, methods, responses, yield_lines
from scrapy_itemgraph.worker.spider.gone_shares import GoneShares
from scrapy_itemgraph.worker.spider.request_operations import start_requests
from scrapy_itemgraph.worker.spider.shared_values import SharedValues
from scrapy_itemgraph.worker.spider.validation import (
    TTL,
    changed_at,
    check_ttl,
    foreign,
    is_of_each_start,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence

    from scrapy import Spider
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from scrapy_itemgraph.model.page_records import PageRecord
    from scrapy_itemgraph.model.tasks import Task
    from scrapy_itemgraph.model.work import ErrorRecord
    from scrapy_itemgraph.worker.downloads.delay_gate import Gate
    from scrapy_itemgraph.worker.executions.active_executions import ActiveExecutions
    from scrapy_itemgraph.worker.executions.execution import Execution
    from scrapy_itemgraph.worker.spider.descriptors import Descriptors
    from scrapy_itemgraph.worker.spider.early_links import EarlyLinks
    from scrapy_itemgraph.worker.spider.enqueuer import Enqueuer
    from scrapy_itemgraph.worker.spider.logins import Logins
    from scrapy_itemgraph.worker.spider.page_rules import PageRules
    from scrapy_itemgraph.worker.spider.retry_or_failure import RetryPolicy, Verdict
from scrapy_itemgraph.worker.spider.validation import Checks

_NO_DOWNLOAD_META = (NO_DOWNLOAD, "dont_cache", "allow_offsite")


@dataclass(slots=True, eq=False, repr=False)
class SpiderOutput:
    """Sorts what one crawl's callbacks give back."""

    crawler: Crawler
    spider: Spider
    active: ActiveExecutions
    gate: Gate
    checks: Checks
    failures: RetryPolicy
    sockets: Descriptors
    enqueuer: Enqueuer
    early_links: EarlyLinks
    logins: Logins
    page_rules: PageRules
    has_tasks: bool
    callbacks: Mapping[str, Mapping[str, Any]]  # ITEMGRAPH_CALLBACKS: also options of errbacks
    starts_at: Callable[[Any], None]  # takes each URL with which the project's own code begins
    most_of_snippet: int  # characters of a response that are kept with an error
    shared_values: SharedValues = field(default_factory=SharedValues)
    gone_shares: GoneShares = field(default_factory=GoneShares)

    # Scrapes

    def enter(self, leg: Leg, response: Response | None = None) -> bool:
        """Mark this asyncio task as the scrape of `leg`; it closes the leg when it is done.

        `response` is what is scraped, if the fetch did not fail. Return whether it was marked
        before.
        """
        task = asyncio.current_task()
        assert task is not None
        current_leg.set(leg)
        leg.lets_go()
        _unmark(leg, response)
        if task in leg.scrapes:
            return True
        leg.scrapes.add(task)
        if response is not None and leg.is_own and leg.execution.claim is not None:
            self._look_how_deep(leg.execution, response)
            self.gone_shares.answered(leg.execution.claim.slot)
            if leg.execution.page is not None and NO_DOWNLOAD not in leg.request.meta:
                _note_page(leg.execution.page, response, leg.request)
        leg.fetched()  # another middleware may have kept the fetch from ours
        task.add_done_callback(lambda task: self._scraped(leg, task))
        return False

    def _look_how_deep(self, execution: Execution, response: Response) -> None:
        """Drop the validators of a page at DEPTH_LIMIT, because Scrapy drops its links."""
        if execution.validators is None or execution.is_of_task or execution.tracks_depth:
            return
        limit = self.crawler.settings.getint("DEPTH_LIMIT")
        if 0 < limit <= response.meta.get("depth", 0):
            execution.validators = None

    def _scraped(self, leg: Leg, task: asyncio.Task[Any]) -> None:
        """Close a leg whose scrape has ended; one that was cancelled has not succeeded."""
        if task.cancelled():
            if self.crawler.engine.running:  # what the callback awaited was cancelled
                self.broke(leg, asyncio.CancelledError("what it awaited was cancelled"))
            else:
                leg.execution.release()
        leg.close()

    async def taken(
        self,
        leg: Leg,
        callback: Any,
        result: AsyncIterator[Any],
        response: Response | None = None,
    ) -> AsyncIterator[Any]:
        """Pass on the items and requests of a callback; of a task's only when it has ended.

        The loop gets its turn meanwhile. A callback that goes on for long while the spider closes
        is stopped, and its work given back.
        """
        execution = leg.execution
        is_owner = execution.is_login or (
            execution.is_of_task
            and (callbacks.takes_item(callback) or callbacks.task_of(callback) is not None)
        )
        held: list[Any] = []
        error: Exception | None = None
        turns = Turns()
        try:
            async for output in result:
                if turns.is_due and await self._is_stopped(execution, turns):
                    break
                kept = self._take(leg, output, result, is_owner=is_owner, callback=callback)
                if execution.is_of_task and kept is not None:
                    held.append(kept)
                elif kept is not None:
                    for stamped in self._stamped(leg, [kept], continues=is_owner, source=result):
                        yield stamped
        except (Exception, asyncio.CancelledError) as raised:  # noqa: BLE001 - raised again below
            error = _as_error(raised)
            self.broke(leg, error, response)
        is_stopped = execution.outcome is Outcome.RELEASED
        is_lost = is_stopped if error is None else execution.is_doomed
        stamped_held = self._stamped(leg, [] if is_lost else held, continues=is_owner)
        async for stamped in turns.within(stamped_held):
            yield stamped
        if error is not None:
            raise error
        if leg.failure is not None:
            self._settle(leg, *leg.failure)

    async def in_turns(
        self, execution: Execution, response: Response, result: AsyncIterator[Any]
    ) -> AsyncIterator[Any]:
        """Pass on outputs but plain links, which are taken here, and let the loop turn."""
        turns = Turns()
        links = self.early_links.of(execution, response)
        try:
            async for output in result:
                if turns.is_due and await self._is_stopped(execution, turns):
                    return
                if links is None:
                    yield output
                elif not links.takes(output):
                    yield output
                    links.passed()
        finally:
            if links is not None:
                links.end()

    async def _is_stopped(self, execution: Execution, turns: Turns) -> bool:
        """Let the loop turn; tell whether a callback is to end that may never do so by itself."""
        await turns.give()
        if self.gate.is_closed:
            execution.release()
        return self.gate.is_closed

    def broke(self, leg: Leg, error: BaseException, response: Response | None = None) -> None:
        """Take note that a callback or an errback raised an error, at a response.

        CloseSpider is none: the page is done with what it yielded, or failed as its errback heard.
        """
        execution = leg.execution
        if isinstance(error, CloseSpider):
            execution.closes_spider = True
            execution.validators = None  # it may have yielded a part of its links
            if leg.failure is not None:
                self._settle(leg, *leg.failure)
        elif isinstance(error, DatabaseUnavailableError):
            execution.release()
        elif isinstance(error, SessionExpired):
            self.logins.expired(leg, error)
        elif isinstance(error, TryAgain) and execution.claim is not None:
            self.active.try_again(execution, error, url=_url(leg))
        else:
            self.failed_by(leg, error, response)

    def failed_by(self, leg: Leg, error: BaseException, response: Response | None = None) -> None:
        """Take note of an error that fails its execution, whatever it is: of a pipeline, say."""
        execution = leg.execution
        if execution.error is None:
            snippet = responses.snippet(response, self.most_of_snippet)
            status = None if response is None else response.status
            self.active.fail(execution, error, url=_url(leg), snippet=snippet, status=status)

    def _take(
        self, leg: Leg, output: Any, source: AsyncIterator[Any], *, is_owner: bool, callback: Any
    ) -> Any:
        """Keep an operation; return a request or an item. An error says where `source` yielded."""
        execution = leg.execution
        where = execution.where
        if output is None:
            return None
        try:
            execution.count_output()
            if isinstance(output, Operation):
                execution.add(self.checks.checked(output, execution, where))
                return None
            if isinstance(output, Request):
                self._check_request(leg, output, where, is_owner=is_owner)
                return output
            if is_item(output) or not (execution.is_of_task or execution.is_login):
                return output
            raise foreign(output, f"{where}: {_name(callback)}")
        except ItemGraphError as wrong:
            yield_lines.show(wrong, source, callback)
            raise

    def _check_request(self, leg: Leg, request: Request, where: str, *, is_owner: bool) -> None:
        if is_of_each_start(request.meta) and is_of_each_start(leg.request.meta):
            del request.meta[TTL]  # it took over the meta of a start request's response
        check_ttl(request.meta, where)
        changed_at(request.meta, where)
        if not is_owner:
            self._check_target(request, where)

    def _check_target(self, request: Request, where: str) -> None:
        task = callbacks.task_of(callbacks.callback_of(request, self.spider))
        if task is not None:
            raise ForeignOutputError(
                f"{where}: a Request to the task {task.name!r} ({request.url}); a task runs when "
                "an item's tag calls for it: yield CreateItem(id=…, tags="
                f"{list(task.tags)!r}, data={{'url': …}}) instead"
            )

    def _stamped(
        self,
        leg: Leg,
        outputs: Sequence[Any],
        *,
        continues: bool,
        source: AsyncIterator[Any] | None = None,
    ) -> Iterator[Any]:
        """Yield outputs, requests with legs; none of work of its own, where nobody hears of it.

        `source` is what has just yielded the one output, and goes on after it.
        """
        for output in outputs:
            if not isinstance(output, Request):
                yield output
                continue
            request = _cleared(output)
            if not continues and leg.execution.page is not None:
                leg.execution.page.links += 1
            if not self.page_rules.takes(request, leg, continues=continues):
                continue
            discovery = None if continues else self.enqueuer.discover(request, leg.execution)
            if discovery is not None and discovery.operation is not None:
                self.shared_values.look(request, leg.execution)
            if self.enqueuer.is_settled(request, discovery, leg.execution):
                continue
            if source is not None and discovery is not None and discovery.error is not None:
                discovery.line = yield_lines.line(source)
            child = leg.open_child(is_discovery=not continues)
            child.discovery = discovery
            request_legs.put(request, child)
            if continues:
                callback = callbacks.callback_of(request, self.spider)
                if leg.execution.is_of_task and callbacks.takes_item(callback):
                    request.cb_kwargs.setdefault("item", leg.execution.item)
            yield request

    # Failed downloads and refused responses

    def failed(self, leg: Leg, errback: Callable[..., Any] | None, failure: Failure) -> Any:
        """Answer a failure in the place of a request's errback."""
        has_response = self.enter(leg)
        execution = leg.execution
        task = execution.task if leg.is_retryable else None
        reason = failure.value
        assert reason is not None
        if leg.request is not None:
            withdraw(leg.request, leg)
        if self._is_no_failure(leg, reason):
            return []
        verdict = self._verdict(leg, reason, task)
        response = reason.response if isinstance(reason, HttpError) else None
        snippet = responses.snippet(response, self.most_of_snippet)
        error = self.active.error_of(
            execution,
            reason,
            kind=verdict.kind,
            url=_url(leg),
            snippet=snippet,
            status=None if response is None else response.status,
        )
        if verdict.outcome is Outcome.RETRY:
            assert verdict.delay is not None
            execution.retry(error, verdict.delay)
            return []
        if errback is None:
            self._settle(leg, verdict.outcome, error)
            return failure
        try:
            result = errback(failure)
        except Exception as raised:
            self.broke(leg, raised)
            if not (isinstance(raised, TryAgain) and execution.attempts_left):
                if isinstance(raised, CloseSpider):
                    self._settle(leg, verdict.outcome, error)
                raise
            result = []
        if isinstance(result, Failure):
            self._settle(leg, verdict.outcome, error)
            return result
        if not (execution.is_of_task or execution.is_login or self._recovers(leg, errback)):
            leg.failure = verdict.outcome, error  # it stays one once the outputs are taken
        return result if has_response else self._taken_from_errback(leg, result)

    def _is_no_failure(self, leg: Leg, reason: BaseException) -> bool:
        """End an execution whose page did not come, and need not, or shall be asked again."""
        execution = leg.execution
        claim = execution.claim
        if isinstance(reason, NotModifiedError):
            assert claim is not None
            self.gone_shares.answered(claim.slot)
            if execution.page is not None:
                _note_page(execution.page, reason.response, leg.request)
            execution.unchanged()
        elif isinstance(reason, PostponedError):
            execution.release()
        elif claim is not None and self.sockets.are_used_up(reason):
            execution.release()
            self.gate.rest(descriptors.REST)
        else:
            return False
        return True

    def _verdict(self, leg: Leg, reason: BaseException, task: Task | None) -> Verdict:
        """Judge a failure; of a slot with too many pages that are gone, some are failures."""
        execution, claim = leg.execution, leg.execution.claim
        page_of = execution.task if leg.is_own else None
        attempt = 1 if claim is None else claim.attempt
        left = None if claim is None else claim.attempts_left
        verdict = self.failures.judge(reason, task, attempt, left=left, page_of=page_of)
        if verdict.outcome is not Outcome.GONE or claim is None or page_of is None:
            return verdict
        self.gone_shares.found_gone(claim.slot)
        is_doubted = page_of.max_failures is not None and self.gone_shares.are_doubtful(claim.slot)
        return replace(verdict, outcome=Outcome.FAILED) if is_doubted else verdict

    def _recovers(self, leg: Leg, errback: Callable[..., Any]) -> bool:
        """Tell whether the settings say of an errback that what it returns undoes the failure."""
        names = methods.errback_names(leg.request, errback, self.spider)
        return any(self.callbacks.get(name, {}).get("recovers", False) for name in names)

    def _taken_from_errback(self, leg: Leg, result: Any) -> Any:
        callback = callbacks.callback_of(leg.request, self.spider)
        if inspect.iscoroutine(result):

            async def awaited() -> AsyncIterator[Any]:
                outputs = callbacks.iterate(iterate_spider_output(await result))
                return self.taken(leg, callback, outputs)

            return self._watched(leg, awaited())
        return self.taken(leg, callback, callbacks.iterate(iterate_spider_output(result)))

    async def _watched(self, leg: Leg, coroutine: Any) -> Any:
        try:
            return await coroutine
        except Exception as raised:
            self.broke(leg, raised)
            if isinstance(raised, TryAgain) and leg.execution.attempts_left:
                return []
            raise

    def _settle(self, leg: Leg, outcome: Outcome, error: ErrorRecord) -> None:
        if outcome is Outcome.FAILED:
            leg.execution.fail(error)
        elif outcome is Outcome.GONE:
            leg.execution.gone(error)
        elif leg.is_own or leg.execution.is_login:
            leg.execution.refuse(error)

    # Outside of callbacks

    def from_start(self, output: Any) -> Any:
        """Pass on an item or a request of `start()`; an operation is committed by itself."""
        where = f"spider {self.spider.name}, start()"
        if isinstance(output, CreateItem):
            self.starts_at(output.data.get("url"))
        if isinstance(output, Operation):
            self.active.apply([self.checks.checked(output, None, where)], where)
            return None
        if isinstance(output, Request):
            check_ttl(output.meta, where, is_start=True)
            changed_at(output.meta, where)
            self._check_target(output, where)
            start_requests.put(output, True)
            self.starts_at(output.url)
            return output
        if self.has_tasks and output is not None and not is_item(output):
            raise foreign(output, where)
        return output


def _as_error(raised: BaseException) -> Exception:
    """Return an error; one in the place of a cancellation that is not this scrape's own."""
    if isinstance(raised, Exception):
        return raised
    task = asyncio.current_task()
    if task is None or task.cancelling():
        raise raised
    error = ItemGraphError("what the callback awaited was cancelled")
    error.__cause__ = raised
    return error


def _unmark(leg: Leg, response: Response | None) -> None:
    """Take from a request's meta what is ours, before the user's code sees it."""
    if leg.is_retryable and leg.execution.is_of_task:
        leg.request.meta.pop("dont_retry", None)
        if response is not None and response.request is not None:
            response.request.meta.pop("dont_retry", None)


def _note_page(page: PageRecord, response: Response, request: Request) -> None:
    """Have it told of a page what response its callback gets."""
    redirects = request.meta.get("redirect_urls", ())
    is_cached = "cached" in response.flags
    page.came(response.status, response.url, len(response.body), redirects, is_cached=is_cached)


def _cleared(request: Request) -> Request:
    """Return a request that nobody else has, without what a copy took over from another one."""
    names = _NO_DOWNLOAD_META if NO_DOWNLOAD in request.meta else ()
    if names or request_legs.get(request) is not None:  # it was yielded before
        request = request.copy()
        for name in names:
            request.meta.pop(name, None)
    return request


def _name(callback: Any) -> str:
    return getattr(callback, "__name__", None) or repr(callback)


def _url(leg: Leg) -> str:
    return leg.request.url if leg.request is not None else ""
