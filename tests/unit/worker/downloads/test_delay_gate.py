"""The gate: what waits there, what is let through, and what is given back; on a real event loop."""

from __future__ import annotations

import asyncio
import math
import time
from datetime import timedelta
from types import SimpleNamespace

import pytest
from scrapy import Request
from scrapy.http import Response
from scrapy.settings import Settings
from support.parts import a_claim

from scrapy_itemgraph import task
from scrapy_itemgraph.model import tasks
from scrapy_itemgraph.model.limits import Grant, Terms
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.throttle.limiter_set import Limiters
from scrapy_itemgraph.worker.downloads.delay_gate import Gate, PostponedError
from scrapy_itemgraph.worker.downloads.downloader_slots import DownloaderSlots
from scrapy_itemgraph.worker.executions.execution import Execution, leg_of

GAP = 0.1
PAGE, FILE = "http://a.example/page", "http://b.example/file"


class Handlers:
    """Downloads that take a while each; `starts` says when each began, `ends` when it was there."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.starts: list[float] = []
        self.ends: list[float] = []

    async def download_request_async(self, request: Request) -> Response:
        self.starts.append(time.monotonic())
        await asyncio.sleep(self.seconds)
        self.ends.append(time.monotonic())
        return Response(request.url)


class Downloader:
    """As much of Scrapy's downloader as the gate stands before."""

    def __init__(self, seconds: float) -> None:
        self.handlers = Handlers(seconds)
        self.slots = {}
        self.active = set()
        self.total_concurrency = 16

    def needs_backout(self) -> bool:
        """Tell whether it is full."""
        return len(self.active) >= self.total_concurrency


class Events:
    """Whose the requests are, and what was told of them; no request keeps to a named limit."""

    def __init__(self, limiters: Limiters) -> None:
        self.limiters = limiters
        self.is_alive = True
        self.told: list[str] = []

    leg_of = staticmethod(leg_of)

    def lane(self, slot, leg):
        return (self.limiters.slot(slot),)

    def more_may_start(self) -> None: ...

    def turned_away(self) -> None:
        self.told.append("all is given back")

    def started(self, lane) -> None:
        pass

    def starting(self, request) -> None:
        self.told.append(f"starting {request.url}")

    def answered(self, request, response, lane, began) -> None:
        self.told.append(f"answered {request.url}")


class Gateway:
    """A gate that has its slots, before a downloader whose downloads take so many seconds."""

    def __init__(self, terms: Terms, seconds: float = 0.0) -> None:
        self.limiters = Limiters(lambda _: terms, lambda _: None)
        self.events = Events(self.limiters)
        for number, name in enumerate(("a.example", "b.example"), 1):
            self.limiters.slot(name)
            self.limiters.identify({name: number})
            given = Grant(limit_id=number, kind="slot", name=name, in_force=terms, units=1)
            self.limiters.take([given], time.monotonic())
        self.gate = Gate(self.limiters, lambda _: None, self.events)
        self.downloader = Downloader(seconds)
        self.handlers = self.downloader.handlers
        self.gate.stand_before(self.downloader)

    def block(self, name: str) -> None:
        """Let a slot be blocked for an hour."""
        one = self.limiters.slot(name)
        one.block(time.monotonic() + 3600)
        self.gate.put_off(one)

    def fetch(self, request: Request) -> asyncio.Task[Response]:
        """Download a request through the gate."""
        return asyncio.ensure_future(self.handlers.download_request_async(request))


def own(url: str, execution: Execution) -> Request:
    """Return a request that is work's own."""
    leg = execution.open_leg(is_own=True)
    leg.handed_out(Request(url))
    return leg.request


def work(*, of_task: bool = True) -> Execution:
    """Return an execution of a claim on the first slot."""

    class Pages:
        @task(tags=["page"])
        def parse(self, response, item): ...

    declared = tasks.discover(Pages)["parse"] if of_task else tasks.of_callback("parse", {})
    return Execution(where="here", on_end=lambda _: None, claim=a_claim(), task=declared)


async def turns(count: int = 20) -> None:
    """Let the event loop turn."""
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("settings", "gap", "delay"),
    [
        ({"DOWNLOAD_DELAY": 4}, 2.0, 4.0),
        ({"DOWNLOAD_DELAY": 4, "RANDOMIZE_DOWNLOAD_DELAY": False}, 4.0, 4.0),
        ({"DOWNLOAD_SLOTS": {"a.example": {"delay": 3, "jitter": 0.1}}}, 2.7, 3.0),
        ({"DOWNLOAD_DELAY": 0}, 0.0, 0.0),
    ],
)
def test_a_slots_terms_have_the_least_gap_and_the_delay_that_is_meant(settings, gap, delay):
    """Jitter lets gaps be shorter than the delay of the settings, which people are shown."""
    crawler = SimpleNamespace(settings=Settings(settings), spider=None, engine=None)

    terms = DownloaderSlots(crawler).terms("a.example")

    assert (terms.gap, terms.delay) == (pytest.approx(gap), delay)


def test_the_gap_after_a_slots_first_request_counts_from_its_answer():
    """A connection may take long to make, so nobody knows when the first request left."""

    async def run() -> Handlers:
        gateway = Gateway(Terms(gap=GAP), seconds=0.3)
        await asyncio.gather(*(gateway.fetch(Request(PAGE)) for _ in range(2)))
        return gateway.handlers

    seen = asyncio.run(run())

    assert seen.starts[1] - seen.ends[0] >= GAP - 0.001


def test_later_gaps_count_from_when_a_request_left():
    """Once a connection stands a slow answer does not slow the slot down."""

    async def run() -> Handlers:
        gateway = Gateway(Terms(gap=GAP), seconds=0.5)
        await gateway.fetch(Request(PAGE))
        await asyncio.gather(*(gateway.fetch(Request(PAGE)) for _ in range(3)))
        return gateway.handlers

    seen = asyncio.run(run())

    assert seen.starts[3] < seen.ends[1]
    assert min(seen.starts[2] - seen.starts[1], seen.starts[3] - seen.starts[2]) >= GAP - 0.001


def test_what_is_not_works_own_waits_for_a_blocked_slot():
    """A file of a pipeline waits; nothing is given back, and nobody gets an error to keep."""

    async def run() -> Response:
        gateway = Gateway(Terms(concurrency=8))
        gateway.block("b.example")
        fetched = gateway.fetch(Request(FILE))
        await turns()
        gateway.gate.put_off(gateway.limiters.slot("b.example"))
        await turns()
        assert not fetched.done()

        gateway.limiters.slot("b.example").blocked_until = -math.inf
        gateway.gate.pump()
        return await fetched

    assert asyncio.run(run()).url == FILE


def test_what_waits_for_a_blocked_slot_does_not_fill_the_downloader():
    """Scrapy goes on with other slots, and stops again where those fill it."""

    async def run() -> None:
        gateway = Gateway(Terms(concurrency=8))
        downloader = gateway.downloader
        waiting = {Request(FILE) for _ in range(16)}
        downloader.active |= waiting
        downloader.slots["b.example"] = type("Slot", (), {"active": waiting})
        assert downloader.needs_backout()

        gateway.block("b.example")
        assert not downloader.needs_backout()
        downloader.active |= {Request(PAGE) for _ in range(16)}
        assert downloader.needs_backout()

    asyncio.run(run())


def test_all_is_given_back_before_a_file_fails_at_the_end():
    """A closing spider waits for no blocked slot; nobody may rely on the file that failed."""

    async def run() -> list[str]:
        gateway = Gateway(Terms(concurrency=8))
        gateway.block("b.example")
        fetched = gateway.fetch(Request(FILE))
        await turns()
        told = gateway.events.told
        told.clear()
        fetched.add_done_callback(lambda _: told.append("the file failed"))
        await turns()
        gateway.gate.close()
        await asyncio.wait([fetched])
        assert isinstance(fetched.exception(), PostponedError)
        await turns()
        return told

    assert asyncio.run(run()) == ["all is given back", "the file failed"]


def test_nothing_starts_for_work_that_was_given_back():
    """Its request is on its way through Scrapy, but its work is another's by now."""

    async def run() -> Handlers:
        gateway = Gateway(Terms(concurrency=8))
        execution = work()
        request = own(PAGE, execution)
        execution.release()
        with pytest.raises(PostponedError):
            await gateway.fetch(request)
        return gateway.handlers

    assert not asyncio.run(run()).starts


def test_nothing_starts_for_work_that_is_given_back_as_its_turn_comes():
    """MNB-12: rules that change give work back at any moment, and a page is asked for once."""

    async def run() -> Gateway:
        gateway = Gateway(Terms(concurrency=1))
        gateway.gate.rest(3600)
        execution = work()
        given_back = gateway.fetch(own(PAGE, execution))
        await turns(3)
        gateway.gate.rest(-1)  # it has its turn now
        execution.release()
        with pytest.raises(PostponedError):
            await given_back
        await gateway.fetch(own(PAGE, work()))  # its place is free
        return gateway

    assert len(asyncio.run(run()).handlers.starts) == 1


def test_all_that_wait_are_put_off_when_the_server_is_gone_at_the_end():
    """A closing spider whose worker may start nothing leaves no request at the gate."""

    async def run() -> list[BaseException | None]:
        gateway = Gateway(Terms(concurrency=8))
        gateway.events.is_alive = False
        ones = [own(url, work()) for url in (PAGE, FILE)] + [Request(PAGE), Request(FILE)]
        fetched = [gateway.fetch(one) for one in ones]
        await turns()
        assert not any(one.done() for one in fetched)

        gateway.gate.close()
        await asyncio.wait(fetched)
        return [one.exception() for one in fetched]

    assert [type(one) for one in asyncio.run(run())] == [PostponedError] * 4


@pytest.mark.parametrize(
    ("of_task", "url", "outcome"),
    [
        (True, PAGE, Outcome.RELEASED),
        (False, PAGE, Outcome.RELEASED),
        (True, FILE, Outcome.RETRY),
    ],
)
def test_what_becomes_of_work_whose_request_is_blocked(of_task, url, outcome):
    """Work of a blocked slot is not claimed again; where only a later request is, it is later."""

    async def run() -> Execution:
        gateway = Gateway(Terms(concurrency=8))
        execution = work(of_task=of_task)
        fetched = gateway.fetch(own(url, execution))
        gateway.block(url.split("/")[2])
        await turns()
        gateway.gate.put_off(gateway.limiters.slot(url.split("/")[2]))
        with pytest.raises(PostponedError):
            await fetched
        return execution

    ended = asyncio.run(run())

    assert ended.outcome is outcome
    if outcome is Outcome.RETRY:
        assert timedelta(minutes=59) < ended.delay <= timedelta(hours=1)


def test_a_process_that_is_told_to_stop_lets_nothing_start_after_a_moment():
    """What is under way may ask for more until then; then its work is given back too."""

    async def run() -> tuple[list[object], int]:
        gateway = Gateway(Terms(gap=60))
        await gateway.fetch(Request(PAGE))
        given_back, waiting = work(), work()
        ones = [own(PAGE, given_back), own(PAGE, waiting), Request(FILE)]
        fetched = [gateway.fetch(one) for one in ones]
        await fetched[2]
        given_back.release()

        gateway.gate.close(last_start_in=0.05)
        late = gateway.fetch(Request(FILE))
        await asyncio.wait([*fetched, late])
        assert "all is given back" in gateway.events.told
        ends = [fetched[0].exception(), fetched[1].exception(), late.exception(), waiting.outcome]
        return ends, len(gateway.handlers.starts)

    ends, starts = asyncio.run(run())

    assert [type(one) for one in ends[:3]] == [PostponedError] * 3
    assert ends[3] is Outcome.RELEASED
    assert starts == 2
