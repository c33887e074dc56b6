"""The parts of a worker that stand in memory, and a graph that answers what a test tells it to."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import scrapy
from scrapy.crawler import Crawler
from scrapy.dupefilters import RFPDupeFilter
from scrapy.statscollectors import MemoryStatsCollector
from scrapy.utils.request import RequestFingerprinter

from scrapy_itemgraph.model.snapshots import ItemSnapshot
from scrapy_itemgraph.model.work import Applied, Claim, CommitResult
from scrapy_itemgraph.settings import Settings
from scrapy_itemgraph.throttle.limiter_set import Limiters
from scrapy_itemgraph.worker.claims.claimer import WorkNews
from scrapy_itemgraph.worker.downloads.delay_gate import Gate
from scrapy_itemgraph.worker.downloads.engine_requests import EngineRequests
from scrapy_itemgraph.worker.executions.active_executions import ActiveExecutions
from scrapy_itemgraph.worker.executions.execution import leg_of
from scrapy_itemgraph.worker.executions.outbox import Outbox
from scrapy_itemgraph.worker.executions.ready_requests import ReadyRequests
from scrapy_itemgraph.worker.spider.callbacks import CallbackTasks
from scrapy_itemgraph.worker.spider.cookies import Jars, State
from scrapy_itemgraph.worker.spider.duplicates import Duplicates
from scrapy_itemgraph.worker.spider.page_rules import PageRules
from scrapy_itemgraph.worker.spider.request_ids import RequestIds
from scrapy_itemgraph.worker.spider.request_operations import RequestOperations
from scrapy_itemgraph.worker.spider.shared_cookies import SessionSync

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

URL = "http://a.example/page"


class Spider(scrapy.Spider):
    """A spider with a plain callback."""

    name = "s"

    def parse(self, response):
        """Yield nothing."""


class Graph:
    """Keeps what it is told, and answers what a test says; nothing of PostgreSQL is played.

    It is all its parts at once.
    """

    def __init__(self) -> None:
        self.claims = self.commits = self.callbacks = self.news = self.run = self.upkeep = self
        self.reads = self.notices = self.rules = self.depths = self
        self.are_tracked = self.has_left = False
        self.committed: list[tuple[Any, ...]] = []
        self.error: Exception | None = None
        self.applied: list[Applied] = []
        self.names_freed = 0
        self.crowd = 1.0
        self.round_period = 1.0
        self.has_cookies = False
        self.names: set[str] = set()
        self.registered: list[str] = []
        self.number = 1
        self.redirected: list[Any] = []
        self.answers: list[Any] = []

    def of(self, claim: Any) -> None:
        """Return the rules of a claim: there are none."""

    def begin_if_due(self) -> None:
        """Send no notices, for there are none."""

    async def commit(self, changesets: Sequence[Any], **more: Any) -> CommitResult:
        """Note what is committed."""
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        self.committed.append(tuple(changesets))
        return CommitResult(
            applied=[
                self.applied.pop(0) if self.applied else Applied(outcome=one.outcome)
                for one in changesets
            ]
        )

    async def register(self, tasks: Sequence[Any]) -> None:
        """Note plain callbacks."""
        self.registered += [one.name for one in tasks]

    async def redirect(self, redirects: Sequence[Any]) -> list[Any]:
        """Note redirects."""
        self.redirected += redirects
        return [self.answers.pop(0) for _ in redirects]


class Parts:
    """What stands in memory of a worker whose spider is `Spider`; to be made on a running loop."""

    is_alive = True
    leg_of = staticmethod(leg_of)

    def __init__(self, spider: type[scrapy.Spider] = Spider, **settings: Any) -> None:
        self.settings = Settings()
        self.crawler = crawler = Crawler(spider, {"LOG_ENABLED": False, **settings})
        crawler.stats = MemoryStatsCollector(crawler)
        crawler.request_fingerprinter = RequestFingerprinter(crawler)
        crawler.spider = self.spider = spider.from_crawler(crawler)
        self.sent: list[scrapy.Request] = []
        crawler.engine = SimpleNamespace(
            running=True, spider=self.spider, crawl=self.sent.append, _slot=None
        )
        self.graph = Graph()
        self.news = WorkNews()
        working, running = set(), set()
        self.limiters = Limiters(lambda _: None, lambda _: None)
        self.gate = Gate(self.limiters, lambda _: None, self)
        self.outbox = Outbox(batch=3)
        self.ready = ReadyRequests(
            working=working,
            running=running,
            places=lambda: {"a.example": 100},
            concurrency=16,
            most_ahead=25,
            wake_engine=lambda: None,
            ran_out=self.outbox.hurried,
        )
        self.active = ActiveExecutions(
            "s",
            working=working,
            running=running,
            ready=self.ready,
            outbox=self.outbox,
            most_operations=1000,
        )
        self.queue = EngineRequests(crawler, self, self.limiters, self.ready)
        self.sessions = SessionSync(self.graph, Jars(crawler), State(self.spider))
        self.callbacks = CallbackTasks(self.spider, {}, {})
        self.page_rules = PageRules(self.spider, crawler.stats, {})
        self.identities = RequestIds(crawler)
        self.operations = RequestOperations(
            self.graph, self.spider, self.identities, self.callbacks, incremental=()
        )
        self.dropped: list[str] = []
        self.duplicates = Duplicates(crawler, RFPDupeFilter.from_crawler(crawler))

    def of(self, slot: str, leg: Any) -> tuple[Any, ...]:
        """Return the lane of a request, which keeps to no limits."""
        return ()

    def more_may_start(self) -> None:
        """Do nothing: there is no engine."""

    def claimed(self, number: int = 1) -> Any:
        """Begin the execution of a claim of the item of that number."""
        return self.active.begin(claim=a_claim(number))

    def stat(self, name: str) -> Any:
        """Return a number that was counted."""
        return self.crawler.stats.get_value(name, 0)


def a_claim(number: int = 1, **fields: Any) -> Claim:
    """Return a claim of the item of that number, with some fields as a test wants them."""
    plain = {
        "item_id": number,
        "task_id": 1,
        "task": "parse",
        "version": "1",
        "token": uuid4(),
        "attempt": 1,
        "claimed_at": datetime.now(UTC),
        "slot": "a.example",
        "is_alone": False,
        "item": ItemSnapshot(id=str(number), aliases=(), tags={}, data={"url": URL}),
    }
    return Claim(**plain | fields)


@contextmanager
def running(*duties: Any) -> Iterator[None]:
    """Have duties run meanwhile."""
    tasks = [asyncio.ensure_future(one) for one in duties]
    try:
        yield
    finally:
        for one in tasks:
            if one.done():
                one.result()
            one.cancel()


async def turns(count: int = 10) -> None:
    """Let the loop turn."""
    for _ in range(count):
        await asyncio.sleep(0)
