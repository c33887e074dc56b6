"""A worker that simulates one execution: a real one, but for its claim and its commit."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from scrapy import signals
from scrapy.http import HtmlResponse
from scrapy.responsetypes import responsetypes

from scrapy_itemgraph.graph import SimulationGraph
from scrapy_itemgraph.model import tasks
from scrapy_itemgraph.tools import logs
from scrapy_itemgraph.worker.executions.outbox import Outbox
from scrapy_itemgraph.worker.spider.made_outputs import WatchedOutput
from scrapy_itemgraph.worker.spider.named_pages import NamedPage
from scrapy_itemgraph.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Sequence
    from pathlib import Path

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from scrapy_itemgraph.model.operations import Operation
    from scrapy_itemgraph.model.simulations import Simulation, SimulationPlan, WantedPage
    from scrapy_itemgraph.model.tasks import Task
    from scrapy_itemgraph.model.work import Claim
    from scrapy_itemgraph.worker.executions.outbox import Entry
    from scrapy_itemgraph.worker.spider.callbacks import CallbackTasks
    from scrapy_itemgraph.worker.spider.made_outputs import MadeOutputs
    from scrapy_itemgraph.worker.spider.request_ids import RequestIds
    from scrapy_itemgraph.worker.spider.spider_output import SpiderOutput
    from scrapy_itemgraph.worker.wiring import Parts

logger = logs.logger(__name__)

SAVED = "saved"  # the flag of a response that was read from a file
_MOST_LINES = 1000  # of a log
# Where a page says what its address is.
_OWN_ADDRESS = (
    "//link[@rel='canonical']/@href | //meta[@property='og:url']/@content | "
    "//comment()[contains(., 'saved from url=')]"
)


async def _no_start() -> AsyncIterator[Any]:
    """Start nothing, in the place of a spider's own `start()`."""
    nothing: tuple[Any, ...] = ()
    for one in nothing:
        yield one


class _SeenOutbox(Outbox):
    """An outbox that keeps what the claim's execution yielded, also where that is dropped."""

    operations: Sequence[Operation] = ()

    def put(self, entry: Entry, *, is_last: bool) -> None:
        if entry.execution is not None and entry.execution.claim is not None:
            self.operations = tuple(entry.execution.operations)
        super().put(entry, is_last=is_last)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainPage:
    """A page of a plain callback: its URL, id or alias, and the callback unless it is its own."""

    name: str
    callback: str | None = None


class SimulationWorker(Worker):
    """Runs one execution, and no seeds, `start()`, upkeep, login or commit.

    It is of a task and an item, or of a plain callback and a page. `page` is a saved page, the
    response of its own request, which is not downloaded then.
    """

    outbox_class: ClassVar[type[Outbox]] = _SeenOutbox
    output_class: ClassVar[type[SpiderOutput]] = WatchedOutput

    def __init__(
        self,
        crawler: Crawler,
        *,
        wanted: SimulationPlan | PlainPage,
        crawl: str | None = None,
        page: Path | None = None,
    ) -> None:
        super().__init__(crawler)
        self.settings = self.settings.but(
            crawl=crawl or self.settings.run.crawl,
            idle="close",
            keep_logs=max(self.settings.records.keep_logs, _MOST_LINES),
        )
        vars(self.spider)["start"] = _no_start
        self.simulation: Simulation | None = None
        self._wanted = wanted
        self._page = page
        self._identities: RequestIds | None = None
        self._watch = ExitStack()

    async def open(self, identities: RequestIds) -> None:
        """Open the graph, in which the item of a request has the name that a crawl gives it."""
        self._identities = identities
        await super().open(identities)
        if self.is_open:
            self._watch_callbacks()

    def _watch_callbacks(self) -> None:
        """Note what callbacks make, and what becomes of it."""
        self._watch.enter_context(self.made.watched())
        for signal in (signals.request_reached_downloader, signals.response_received):
            self.crawler.signals.connect(self.made.downloaded, signal)

    @property
    def made(self) -> MadeOutputs:
        """What callbacks made, and what they yielded of it."""
        assert isinstance(self.parts.spider_output, WatchedOutput)
        return self.parts.spider_output.made

    @property
    def identities(self) -> RequestIds:
        """By what names a crawl knows requests, once it is open."""
        assert self._identities is not None
        return self._identities

    @property
    def dropped(self) -> Sequence[Operation]:
        """What the execution yielded and nothing is kept of."""
        assert isinstance(self.parts.outbox, _SeenOutbox)
        if self.simulation is None or self.simulation.changeset.operations:
            return ()
        return self.parts.outbox.operations

    def task_of(self, claim: Claim) -> Task:
        """Return the task of the claim, or the one of its plain callback."""
        own = self.tasks.get(claim.task)
        return own or tasks.of_named_callback(claim.task, self.settings.results.callbacks)

    @property
    def released_because(self) -> str:
        """Why the work was given back, where it was."""
        if self.parts.logins.is_under_way:
            return "the session expired: a crawl would log in, and run it again"
        now = time.monotonic()
        blocked = sorted(one.name for one in self.base.limiters if one.blocked_until > now)
        if blocked:
            return f"blocked: {', '.join(blocked)} (scrapy itemgraph slots)"
        return "the spider was closed before the task had ended"

    async def _open_graph(self, callbacks: CallbackTasks) -> SimulationGraph:
        wanted = self._wanted_of(callbacks)
        return await SimulationGraph.prepare(self.settings, wanted=wanted, **self._start(callbacks))

    def _wanted_of(self, callbacks: CallbackTasks) -> SimulationPlan | WantedPage:
        """Return what is to be simulated, in terms of the spider that is read."""
        wanted, is_saved = self._wanted, self._page is not None
        if not isinstance(wanted, PlainPage):
            return replace(wanted, is_saved=is_saved)
        return NamedPage(
            name=wanted.name,
            callback=wanted.callback,
            is_saved=is_saved,
            callbacks=callbacks,
            identities=self.identities,
        )

    def response_to(self, request: Request) -> Response:
        """Return the saved page, where there is one."""
        if self._page is None:
            return super().response_to(request)
        self.base.jars.add_to(request)
        response = saved_response(request, self._page.read_bytes(), self._page.name)
        if isinstance(response, HtmlResponse):
            _warn_of_other_site(response, self._page)
        return response

    def _all_duties(self, parts: Parts) -> Sequence[Coroutine[Any, Any, None]]:
        return (
            parts.claimer.run(),
            parts.claimer.listen(),
            parts.claimer.hear(),
            parts.claimer.watch_room(),
            parts.claimer.hand_out.run(),
            parts.limit_sync.run(),
            parts.redirects.run(),
            parts.committer.feed_starved(),
            parts.content_writer.run(),
        )

    async def close(self, reason: str) -> None:
        """Give up the graph, and keep what the simulation came to."""
        graph = self._graph
        with self._watch:
            await super().close(reason)
        if isinstance(graph, SimulationGraph):
            self.simulation = graph.simulation


def saved_response(request: Request, body: bytes, filename: str | None = None) -> Response:
    """Return a saved page as the response of a request.

    Its class is that of the URL, the file's name or the content.
    """
    cls = responsetypes.from_args(url=request.url, filename=filename, body=body)
    return cls(request.url, body=body, request=request, flags=[SAVED])


def _warn_of_other_site(response: HtmlResponse, page: Path) -> None:
    """Warn of a saved page that names another site as its own."""
    ours = urlsplit(response.url).hostname
    for said in response.xpath(_OWN_ADDRESS).getall():
        address = said.partition("saved from url=(")[2].partition(")")[2] or said
        host = urlsplit(address.split()[0] if address.split() else "").hostname
        if host is not None and host != ours:
            logger.warning(
                "the saved page %s says that it is of %s, and the request goes to %s",
                page,
                host,
                ours,
                extra={"action": "other_site"},
            )
            return
