"""What callbacks and errbacks give back, sorted alone: what is taken, what goes on, what fails."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from scrapy import Request, Spider
from scrapy.exceptions import CloseSpider, IgnoreRequest
from scrapy.http import Response
from scrapy.spidermiddlewares.httperror import HttpError
from support.parts import URL, Parts, a_claim, running
from twisted.internet.error import ConnectionRefusedError as RefusedConnectionError
from twisted.python.failure import Failure

from scrapy_itemgraph import task
from scrapy_itemgraph.exceptions import ForeignOutputError, SessionExpired
from scrapy_itemgraph.model import tasks
from scrapy_itemgraph.model.operations import UpdateData
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.tools import async_tools
from scrapy_itemgraph.worker.downloads.revalidation import NotModifiedError
from scrapy_itemgraph.worker.executions.execution import Leg, request_legs
from scrapy_itemgraph.worker.spider.descriptors import Descriptors
from scrapy_itemgraph.worker.spider.early_links import EarlyLinks
from scrapy_itemgraph.worker.spider.gone_shares import MOST
from scrapy_itemgraph.worker.spider.retry_or_failure import RetryPolicy
from scrapy_itemgraph.worker.spider.spider_output import SpiderOutput
from scrapy_itemgraph.worker.spider.validation import Checks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scrapy_itemgraph.worker.executions.execution import Execution

CHANGE = UpdateData({"title": "a title"})
ITEM = {"name": "one"}


class Pages(Spider):
    """A task with a follow-up of its own, and a plain callback."""

    name = "s"

    @task(tags=["page"])
    def parse(self, response, item):
        """Do nothing."""

    def parse_part(self, response, item):
        """Do nothing: it goes on with the execution, since it takes its item."""

    def parse_plain(self, response):
        """Do nothing."""


class Neighbour:
    """Notes what it is told, in the place of the enqueuer and of the logins."""

    def __init__(self) -> None:
        self.taken: list[Request] = []
        self.settles = False
        self.expirations: list[Leg] = []

    def discover(self, request: Request, execution: Execution) -> None:
        self.taken.append(request)

    def is_settled(self, request: Request, discovery: None, execution: Execution) -> bool:
        return self.settles

    def expired(self, leg: Leg, error: SessionExpired) -> None:
        self.expirations.append(leg)


class Scrape:
    """A claim's request whose response has come, and what sorts the outputs of its callback."""

    def __init__(self, *, of_task: bool = True, callbacks: Any = None) -> None:
        parts = self.parts = Parts(Pages)
        self.neighbour = Neighbour()
        declared = tasks.discover(Pages)
        self.outputs = SpiderOutput(
            parts.crawler,
            parts.spider,
            parts.active,
            gate=parts.gate,
            checks=Checks(declared, {"parse_plain"}),
            failures=RetryPolicy(parts.crawler.settings, max_retry_after=timedelta(hours=1)),
            sockets=Descriptors(),
            enqueuer=self.neighbour,
            early_links=EarlyLinks(
                parts.crawler,
                parts.identities,
                parts.duplicates,
                self.neighbour,
                parts.page_rules,
                has_tasks=True,
            ),
            logins=self.neighbour,
            page_rules=parts.page_rules,
            has_tasks=True,
            callbacks=callbacks or {},
            starts_at=lambda _: None,
            most_of_snippet=100,
        )
        self.task = declared["parse"] if of_task else tasks.of_callback("parse_plain", {})
        self.execution = parts.active.begin(claim=a_claim(), task=self.task)
        self.leg = self.execution.open_leg(is_own=True)
        self.callback = parts.spider.parse if of_task else parts.spider.parse_plain
        self.leg.request = Request(URL, callback=self.callback)
        self.kept: list[Any] = []

    async def take(self, *outputs: Any) -> list[Any]:
        """Take what the callback yields, the errors that it raises too; return what goes on."""

        async def result():
            for output in outputs:
                if isinstance(output, Exception):
                    raise output
                yield output

        async for kept in self.outputs.taken(self.leg, self.callback, result()):
            self.kept.append(kept)
        return self.kept

    def fail(self, error: Exception, errback: Any = None) -> Any:
        """Let the download fail; return what the request's errback gives back to Scrapy."""
        return self.outputs.failed(self.leg, errback, Failure(error))


def test_operations_stay_with_the_execution_and_items_go_on():
    """What goes on to the pipelines is the item; the operation is what the execution commits."""

    async def scrape() -> None:
        one = Scrape()
        assert await one.take(CHANGE, None, ITEM) == [ITEM]
        assert one.execution.operations == [CHANGE]
        assert one.execution.outcome is Outcome.OK

    asyncio.run(scrape())


def test_a_request_of_a_task_goes_on_with_its_execution():
    """A follow-up carries a leg of the same execution, and its callback gets the item."""

    async def scrape() -> None:
        one = Scrape()
        one.execution.item = item = object()
        (request,) = await one.take(Request(URL, one.parts.spider.parse_part))
        leg = request_legs.get(request)
        assert leg.execution is one.execution
        assert not leg.is_discovery
        assert request.cb_kwargs == {"item": item}
        assert one.neighbour.taken == []

    asyncio.run(scrape())


def test_a_request_of_a_plain_callback_becomes_work_of_its_own():
    """The enqueuer hears of it before the engine does."""

    async def scrape() -> None:
        one = Scrape(of_task=False)
        (request,) = await one.take(Request(URL, one.parts.spider.parse_plain))
        assert request_legs.get(request).is_discovery
        assert one.neighbour.taken == [request]

    asyncio.run(scrape())


def test_a_known_request_of_which_nobody_hears_goes_no_further():
    """It opens no leg and does not reach the engine; the items of its page do."""

    async def scrape() -> None:
        one = Scrape(of_task=False)
        one.neighbour.settles = True
        assert await one.take(ITEM, Request(URL, one.parts.spider.parse_plain)) == [ITEM]
        assert not one.leg.children

    asyncio.run(scrape())


def test_the_loop_turns_while_what_a_task_held_back_goes_on(monkeypatch):
    """A task's items and requests wait for its end; a great many do not go on in one step."""
    monkeypatch.setattr(async_tools, "LONGEST_TURN", 0.0)
    seen = []

    async def beat() -> None:
        while True:
            seen.append(1)
            await asyncio.sleep(0)

    async def scrape() -> None:
        one = Scrape()
        with running(beat()):
            async for _ in one.outputs.taken(one.leg, one.callback, aiter_of([ITEM] * 50)):
                before = len(seen)
        assert before >= 2 * 50  # each is taken, and then goes on

    asyncio.run(scrape())


async def aiter_of(outputs: list[Any]) -> AsyncIterator[Any]:
    """Yield outputs as a callback does."""
    for output in outputs:
        yield output


def test_nothing_of_a_task_that_raised_goes_on():
    """The error is the execution's, and is raised again for Scrapy to log."""

    async def scrape() -> None:
        one = Scrape()
        with pytest.raises(ValueError, match="no price"):
            await one.take(CHANGE, ITEM, ValueError("no price"))
        assert one.kept == []
        assert one.execution.outcome is Outcome.FAILED
        assert one.execution.error.message == "no price"
        assert one.execution.changeset().operations == ()

    asyncio.run(scrape())


def test_what_a_plain_callback_yielded_before_its_error_is_kept():
    """Its items went on as they came, and its operations are committed with the failure."""

    async def scrape() -> None:
        one = Scrape(of_task=False)
        with pytest.raises(ValueError, match="no price"):
            await one.take(ITEM, CHANGE, ValueError("no price"))
        assert one.kept == [ITEM]
        assert one.execution.changeset().operations == (CHANGE,)

    asyncio.run(scrape())


def test_a_request_to_a_task_is_refused_in_plain_callbacks():
    """A task runs when a tag calls for it, and the error says what to yield instead."""

    async def scrape() -> None:
        one = Scrape(of_task=False)
        with pytest.raises(ForeignOutputError, match="yield CreateItem"):
            await one.take(Request(URL, one.parts.spider.parse))
        assert one.kept == []

    asyncio.run(scrape())


def test_what_a_task_may_not_yield_is_named():
    """Something that is neither operation, request nor item fails its execution."""

    async def scrape() -> None:
        one = Scrape()
        with pytest.raises(ForeignOutputError, match="parse"):
            await one.take(7)
        assert one.execution.outcome is Outcome.FAILED

    asyncio.run(scrape())


def test_a_page_that_closes_the_spider_is_done():
    """CloseSpider is no failure of the page that raised it, which keeps what it yielded."""

    async def scrape() -> None:
        one = Scrape()
        with pytest.raises(CloseSpider):
            await one.take(CHANGE, CloseSpider("enough"))
        one.execution.release()
        assert one.execution.outcome is Outcome.OK
        assert one.execution.operations == [CHANGE]

    asyncio.run(scrape())


def test_a_session_that_expired_is_told_to_the_logins():
    """They decide what becomes of the work."""

    async def scrape() -> None:
        one = Scrape()
        with pytest.raises(SessionExpired):
            await one.take(SessionExpired())
        assert one.neighbour.expirations == [one.leg]

    asyncio.run(scrape())


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (RefusedConnectionError("no"), Outcome.RETRY),
        (IgnoreRequest("not today"), Outcome.REFUSED),
        (ValueError("odd"), Outcome.FAILED),
    ],
)
def test_a_download_that_failed_settles_its_work(error, outcome):
    """Without an errback the project's settings say what the error means for the attempt."""

    async def scrape() -> None:
        one = Scrape()
        answer = one.fail(error)
        assert one.execution.outcome is outcome
        assert answer == [] if outcome is Outcome.RETRY else answer.value is error

    asyncio.run(scrape())


@pytest.mark.parametrize(("recovers", "outcome"), [(False, Outcome.FAILED), (True, Outcome.OK)])
def test_an_errback_undoes_a_failure_where_the_settings_say_so(recovers, outcome):
    """What the errback of a plain callback yields is taken; the failure stays one by default."""

    def rescue(failure):
        return [ITEM]

    async def scrape() -> None:
        one = Scrape(of_task=False, callbacks={"rescue": {"recovers": recovers}})
        outputs = one.fail(ValueError("odd"), rescue)
        assert [kept async for kept in outputs] == [ITEM]
        assert one.execution.outcome is outcome

    asyncio.run(scrape())


def test_a_scrape_closes_its_leg_when_its_task_is_done():
    """The leg stays open for as long as the asyncio task that was entered."""

    async def scrape() -> None:
        one = Scrape()
        may_end = asyncio.Event()

        async def scraping() -> None:
            assert not one.outputs.enter(one.leg)
            assert one.outputs.enter(one.leg)
            await may_end.wait()

        task = asyncio.create_task(scraping())
        await asyncio.sleep(0)
        assert one.leg.is_open
        may_end.set()
        await task
        await asyncio.sleep(0)
        assert not one.leg.is_open
        assert one.execution not in one.parts.active.executions

    asyncio.run(scrape())


def test_operations_of_start_are_committed_by_themselves():
    """An operation of `start()` is put for the next commit, and a request goes on to Scrapy."""

    async def scrape() -> None:
        one = Scrape()
        pending = one.parts.outbox.pending
        request = Request(URL, one.parts.spider.parse_plain)
        create = UpdateData({"a": 1}, id="A")
        assert one.outputs.from_start(create) is None
        assert one.outputs.from_start(request) is request
        assert one.parts.outbox.pending == pending + 1

    asyncio.run(scrape())


def test_too_many_pages_that_are_gone_are_failures_of_a_task_that_failures_stop():
    """Of one without max_failures they stay gone; an errback is called all the same."""

    async def scrape() -> None:
        for most, outcome in ((None, Outcome.GONE), (3, Outcome.FAILED)):
            one = Scrape(of_task=False)
            one.execution.task = replace(one.task, max_failures=most, answers={404: "gone"})
            for _ in range(MOST):
                one.outputs.gone_shares.answered(one.execution.claim.slot)
                one.outputs.gone_shares.found_gone(one.execution.claim.slot)
            one.fail(HttpError(Response(URL, status=404)))
            assert one.execution.outcome is outcome
            assert one.execution.error.type == "http 404"

    asyncio.run(scrape())


def test_unchanged_pages_are_answers_beside_those_that_are_gone():
    """Otherwise a site of which hardly a page changes would seem to lose most of its pages."""

    async def scrape() -> None:
        one = Scrape(of_task=True)
        shares, slot = one.outputs.gone_shares, one.execution.claim.slot
        for _ in range(MOST + 1):
            shares.answered(slot)
            shares.found_gone(slot)
        assert shares.are_doubtful(slot)
        for _ in range(20 * MOST):
            assert one.fail(NotModifiedError(Response(URL, status=304))) == []
        assert one.execution.outcome is Outcome.UNCHANGED
        assert not shares.are_doubtful(slot)

    asyncio.run(scrape())


def test_a_page_that_is_gone_keeps_what_its_errback_yields():
    """In a plain callback; in a task's execution an errback that returns has handled the page."""

    async def scrape() -> None:
        for of_task, outcome in ((False, Outcome.GONE), (True, Outcome.OK)):
            one = Scrape(of_task=of_task)
            one.execution.task = replace(one.task, answers={404: "gone"})
            told = one.fail(HttpError(Response(URL, status=404)), lambda failure: [CHANGE])
            assert [output async for output in told] == []
            assert one.execution.outcome is outcome
            assert one.execution.changeset().operations == (CHANGE,)

    asyncio.run(scrape())
