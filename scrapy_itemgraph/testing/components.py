"""What a run puts between Scrapy's engine and the project: it answers, and it takes notes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy import Request, signals
from scrapy.exceptions import IgnoreRequest

from scrapy_itemgraph.model.operations import Operation
from scrapy_itemgraph.testing.worker import TestingWorker
from scrapy_itemgraph.worker import worker as workers
from scrapy_itemgraph.worker.executions.execution import leg_of, request_legs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from typing import Self

    from scrapy.crawler import Crawler
    from scrapy.http import Response


class _Component:
    """A component of a run's crawler."""

    def __init__(self, worker: TestingWorker) -> None:
        self._worker = worker

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the component of a crawler."""
        worker = workers.of(crawler)
        assert isinstance(worker, TestingWorker)
        return cls(worker)


class AnswersMiddleware(_Component):
    """The downloader middleware that answers each request with a saved page, or refuses it."""

    def process_request(self, request: Request) -> Response:
        """Return the saved page of a request."""
        pages = self._worker.pages
        leg = leg_of(request)
        is_first = leg is not None and leg.is_own and not self._worker.has_begun
        if is_first:
            self._worker.has_begun = True
        response = pages.own_response(request) if is_first else pages.response(request)
        if response is None:
            raise IgnoreRequest(
                f"a test downloads nothing, and {request.url} has no saved page; give one: "
                f"pages={{{request.url!r}: …}}"
            )
        return response


class NotesMiddleware(_Component):
    """The spider middleware behind all of the project's: it notes what callbacks yield."""

    def process_spider_output(
        self,
        response: Response,  # noqa: ARG002 - Scrapy's signature
        result: Iterable[Any],
    ) -> Iterable[Any]:
        """Note outputs, and pass them on."""
        for output in result:
            self._note(output)
            yield output

    async def process_spider_output_async(
        self,
        response: Response,  # noqa: ARG002 - Scrapy's signature
        result: AsyncIterator[Any],
    ) -> AsyncIterator[Any]:
        """Note outputs, and pass them on."""
        async for output in result:
            self._note(output)
            yield output

    def _note(self, output: Any) -> None:
        if isinstance(output, Operation):
            self._worker.operations.append(output)
        elif isinstance(output, Request):
            self._worker.requests.append(output)


class PagelessExtension(_Component):
    """Keeps requests from the scheduler that have no saved page and belong to the execution."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the extension, and have it asked about each request."""
        extension = super().from_crawler(crawler)
        crawler.signals.connect(extension.scheduled, signal=signals.request_scheduled)
        return extension

    def scheduled(self, request: Request) -> None:
        """Let a request go on that has a page, or that is the run's own, or becomes an item."""
        leg = request_legs.get(request)
        if leg is None or self._worker.pages.has(request):
            return
        is_own = leg.is_own and not self._worker.has_begun
        becomes_item = leg.is_discovery and leg.discovery is not None and not leg.discovery.error
        if not (is_own or becomes_item):
            raise IgnoreRequest("it has no saved page")
