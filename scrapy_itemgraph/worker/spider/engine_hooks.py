"""What Scrapy's engine does with a leg's request, followed: its fetch, its scrape, its failure.

A middleware may answer a request with a response that names another one, and may return a request
that it made anew. So whose a fetch or a scrape is follows from the engine's own request, and
nothing of ours stands on that request for others to see.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from scrapy import Request
from twisted.python.failure import Failure

from scrapy_itemgraph.exceptions import ItemGraphError
from scrapy_itemgraph.worker import scrapy_internals
from scrapy_itemgraph.worker.downloads import delay_gate
from scrapy_itemgraph.worker.executions.execution import (
    Leg,
    LegState,
    current_leg,
    leg_of,
    request_legs,
)
from scrapy_itemgraph.worker.spider import responses

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from scrapy.http import Response

    from scrapy_itemgraph.worker.executions.active_executions import ActiveExecutions
    from scrapy_itemgraph.worker.spider.cookies import Jars
    from scrapy_itemgraph.worker.spider.spider_output import SpiderOutput


@dataclass(slots=True, eq=False, repr=False)
class EngineHooks:
    """Stands before three methods of the engine's parts; each does what it did."""

    active: ActiveExecutions
    outputs: SpiderOutput
    jars: Jars

    def stand_before(self, engine: Any) -> None:
        """Take the place of the methods of an engine's downloader and scraper."""
        scrapy_internals.around_fetches(engine, self._download)
        scrapy_internals.around_scrapes(engine, self._scrape)
        scrapy_internals.around_spider_calls(engine, self._call_spider)

    # The fetch

    async def _download(
        self, download: Callable[..., Awaitable[Any]], download_func: Any, request: Request
    ) -> Response | Request:
        """Follow the fetch of a leg's request, and note what it led to."""
        leg = leg_of(request)
        if leg is not None:
            leg.fetch = asyncio.current_task()
            assert leg.fetch is not None
            leg.fetch.add_done_callback(lambda task: self._fetched(leg, task))

        async def unseen_download(request: Request) -> Response:
            with delay_gate.unseen():
                response: Response = await download_func(request)
            return response

        with delay_gate.seen_again():
            result: Response | Request = await download(unseen_download, request)
        if leg is not None and isinstance(result, Request):
            request_legs.put(result, leg)
        return result

    def _fetched(self, leg: Leg, task: asyncio.Task[Any]) -> None:
        if leg.fetch is not task:  # what it led to is on its way already
            return
        leg.fetched()
        self.jars.note(leg.request)
        if task.cancelled():
            leg.execution.release()
            leg.close()
        elif (
            task.exception() is None
            and isinstance(task.result(), Request)
            and leg.state is LegState.RUNNING
        ):
            self._refused(leg, task.result())

    def _refused(self, leg: Leg, request: Request) -> None:
        """Close a leg whose redirect or retry was not let into the scheduler."""
        if leg.is_own and leg.execution.claim is not None:
            why = ItemGraphError(f"the request that {leg.request.url} led to was refused")
            leg.execution.refuse(
                self.active.error_of(leg.execution, why, kind="refused", url=request.url)
            )
        leg.close()

    # The scrape

    async def _scrape(
        self,
        scrape: Callable[..., Awaitable[Any]],
        scrape_func: Any,
        response: Response,
        request: Request,
    ) -> Any:
        """Watch the scrape of a response."""
        self._enter(response, request)
        return await scrape(scrape_func, response, request)

    def _enter(self, response: Response, request: Request) -> None:
        """Begin a scrape, of a leg of its own where the request has none."""
        leg = leg_of(request)
        if leg is None or not leg.is_open:
            leg = self.active.begin(url=response.url).open_leg()
            leg.request = request
        self.outputs.enter(leg, response)
        task = asyncio.current_task()
        assert task is not None
        responses.watch(task, response)

    async def _call_spider(
        self,
        call: Callable[..., Awaitable[Any]],
        result: Response | Failure,
        request: Request,
    ) -> Any:
        """Have a failure judged before the errback hears of it; a task may get no response."""
        leg = _leg_of_call(request)
        if leg is None:
            return await call(result, request)
        if isinstance(result, Failure) and request.errback is None:
            # With a stand-in Scrapy would look at an errback, which takes the spider's settings.
            judged = self.outputs.failed(leg, None, result)
            return await call(result, request) if judged is result else judged
        if isinstance(result, Failure):
            with _called_instead(request, "errback", partial(self.outputs.failed, leg)):
                return await self._judged(leg, call(result, request))
        asked = result.request
        if leg.is_without_response and asked is not None and asked.callback is not None:
            with _called_instead(asked, "callback", _without_response):
                return await call(result, request)
        return await call(result, request)

    async def _judged(self, leg: Leg, call: Awaitable[Any]) -> Any:
        """Await a call of an errback, which Scrapy may not get as far as to make."""
        try:
            return await call
        except Exception as error:
            if not leg.scrapes:
                self.outputs.enter(leg)
                self.outputs.broke(leg, error)
            raise


def _leg_of_call(request: Request) -> Leg | None:
    """Return the leg of a request: of the scrape that is under way, or of a fetch that failed."""
    leg = leg_of(request) or current_leg.get()
    return leg if leg is not None and leg.request is request else None


def _without_response(callback: Any, _response: Response, **kwargs: Any) -> Any:
    return callback(None, **kwargs)


@contextmanager
def _called_instead(request: Request, name: str, stand_in: Callable[..., Any]) -> Iterator[None]:
    """Have a stand-in called with a request's callback or errback and what that is to get.

    It stands on the request no longer than until it is called.
    """
    own = getattr(request, name)

    def called(*args: Any, **kwargs: Any) -> Any:
        setattr(request, name, own)
        return stand_in(own, *args, **kwargs)

    setattr(request, name, called)
    try:
        yield
    finally:
        if getattr(request, name) is called:
            setattr(request, name, own)
