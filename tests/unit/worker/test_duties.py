"""Limit sync, maintenance, logins and the claimer, alone: what each does when something is news."""

from __future__ import annotations

import asyncio
import math
from types import SimpleNamespace
from typing import Any

import pytest
from scrapy import Request
from support.parts import URL, Parts, running, turns
from support.parts import Spider as Plain

from scrapy_itemgraph.exceptions import SessionExpired
from scrapy_itemgraph.graph import worker_duties
from scrapy_itemgraph.model.tallies import Tallies
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.store.logins import Turn
from scrapy_itemgraph.store.registry.duties import OF_WORKER, Duty, Round
from scrapy_itemgraph.worker.executions.execution import request_legs
from scrapy_itemgraph.worker.limit_sync import LimitSync
from scrapy_itemgraph.worker.maintenance import Maintenance
from scrapy_itemgraph.worker.spider.logins import Logins
from scrapy_itemgraph.worker.spider_start import SpiderStart


class Limiters:
    """No limits, and an event that says that one is wanted."""

    unidentified = ()

    def __init__(self) -> None:
        self.wanted, self.lock = asyncio.Event(), asyncio.Lock()

    def __iter__(self):
        return iter(())

    def uses(self, _: Any) -> list[Any]:
        """Return nothing to tell."""
        return []

    def take(self, *_: Any, **__: Any) -> None:
        """Take nothing."""

    def next_renewal(self, _: Any) -> float:
        """Return that nothing is due."""
        return math.inf


class Feedback:
    """What sites answered."""

    def __init__(self) -> None:
        self.unsaved = ["slow down"]


class WorkerLimits:
    """Counts how often the database is asked, and has what it was taught."""

    def __init__(self) -> None:
        self.asked = 0
        self.saved: list[Any] = []

    async def renew(self, _: Any) -> dict[int, Any]:
        """Give nothing."""
        self.asked += 1
        return {}

    async def save_feedback(self, answers: Any) -> None:
        """Note answers."""
        self.saved += answers


async def never(_: float) -> bool:
    """Wait for news that do not come."""
    await asyncio.sleep(3600)
    return False


def limit_sync(parts: Parts) -> LimitSync:
    """Return the sync of some parts that have no limits."""
    parts.limiters = Limiters()
    parts.feedback = Feedback()
    parts.graph.limits = WorkerLimits()
    parts.graph.wait_for_own = never
    return LimitSync(
        parts.graph,
        parts.limiters,
        parts.active,
        parts.queue,
        gate=parts.gate,
        feedback=parts.feedback,
        news=parts.news,
    )


def test_limits_are_asked_for_as_soon_as_one_is_wanted():
    """It asks once at the start, and again when somebody wants a limit that is not in hand."""

    async def run() -> list[int]:
        parts = Parts()
        sync = limit_sync(parts)
        with running(sync.run()):
            await turns(30)
            first = parts.graph.limits.asked
            parts.limiters.wanted.set()
            await turns(30)
            return [first, parts.graph.limits.asked]

    assert asyncio.run(run()) == [1, 2]


def test_what_sites_answered_is_saved_once():
    """At the end what no other transaction has saved is saved, and then no more."""

    async def run() -> list[Any]:
        parts = Parts()
        sync = limit_sync(parts)
        await sync.save()
        await sync.save()
        return parts.graph.limits.saved

    assert asyncio.run(run()) == ["slow down"]


class Duties:
    """Has nothing to do."""

    async def do_due(self) -> None:
        """Do nothing."""


class SlowTransactions:
    """Takes 0.2 s of a clock of its own for each duty, and notes which it was."""

    crawl_id = 1

    def __init__(self) -> None:
        self.done: list[Duty] = []
        self.now = 0.0

    def monotonic(self) -> float:
        """Tell the time."""
        return self.now

    async def call(self, _: Any, duty: Duty) -> Round:
        """Do it."""
        self.done.append(duty)
        self.now += 0.2
        return Round()


def test_slow_duties_leave_the_connection_to_claims_and_commits(monkeypatch) -> None:
    """After 0.3 s of duties the rest is left for the next round, and all have their turn."""
    slow = SlowTransactions()
    monkeypatch.setattr(worker_duties, "time", slow)
    duties = worker_duties.WorkerDuties(
        slow, SimpleNamespace(scraped_items=SimpleNamespace(keep_items=True))
    )

    async def run() -> None:
        await duties.do_due()
        assert slow.done == list(OF_WORKER[:2])
        for _ in range(len(OF_WORKER)):
            await duties.do_due()

    asyncio.run(run())
    assert slow.done[: len(OF_WORKER)] == list(OF_WORKER)


class Sessions:
    """Counts what is saved and taken over."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def save(self) -> None:
        """Note it."""
        self.calls.append("saved")

    async def refresh_state(self) -> None:
        """Note it."""
        self.calls.append("state")

    async def refresh_cookies(self, _: Any) -> None:
        """Note it."""
        self.calls.append("cookies")


@pytest.mark.parametrize(("error", "marked"), [(None, 1), ("start() raised ValueError", 0)])
def test_maintenance_tells_of_work_that_came_free_and_marks_the_start_once(error, marked):
    """It sets the news. A start that raised is not marked, so that the next one resumes its run."""

    async def run() -> tuple[bool, int]:
        parts = Parts()
        marks = 0
        more = [True, False]

        async def mark_started() -> None:
            nonlocal marks
            marks += 1
            graph.is_start_told = True

        async def keep_up(told=None) -> bool:
            return more.pop(0) if more else False

        async def learn_callbacks() -> bool:
            return False

        graph = parts.graph
        graph.mark_started, graph.keep_up, graph.learn = (
            mark_started,
            keep_up,
            learn_callbacks,
        )
        graph.staged, graph.is_sweeping, graph.duties = 0, False, Duties()
        graph.crowd, graph.is_start_told = 1.0, False
        start = SpiderStart(error=error)
        start.end()
        maintenance = Maintenance(
            graph,
            parts.active,
            crawler=parts.crawler,
            sessions=Sessions(),
            tallies=Tallies(),
            start=start,
            news=parts.news,
        )
        with running(maintenance.run()):
            await turns()
        return parts.news.is_set(), marks

    assert asyncio.run(run()) == (True, marked)


def test_what_was_being_told_as_the_crawl_ended_is_told_at_its_end():
    """A round that is cancelled, or whose answer is lost, leaves its tallies to the end."""

    async def run() -> list[Tallies]:
        parts = Parts()
        telling: list[Tallies] = []

        async def keep_up(told: Tallies) -> bool:
            telling.append(told)
            return await asyncio.Event().wait()

        parts.graph.keep_up = keep_up
        parts.graph.crowd = 1.0
        tallies = Tallies()
        tallies.ended(1, Outcome.OK)
        maintenance = Maintenance(
            parts.graph,
            parts.active,
            crawler=parts.crawler,
            sessions=Sessions(),
            tallies=tallies,
            start=SpiderStart(),
            news=parts.news,
        )
        with running(maintenance.run()):
            await turns()
        (told,) = telling
        assert tallies.take_all()[0] is told
        return telling

    assert [one.of_tasks[1].done for one in asyncio.run(run())] == [1]


@pytest.mark.parametrize(("crowd", "seconds"), [(1.0, 1), (8.0, 8), (100.0, 10)])
def test_each_of_many_workers_keeps_the_crawl_up_more_rarely(crowd, seconds):
    """Together they do it no more often than a few; but never more rarely than every 10 s."""
    parts = Parts()
    parts.graph.crowd = crowd
    maintenance = Maintenance(
        parts.graph,
        parts.active,
        crawler=parts.crawler,
        sessions=Sessions(),
        tallies=Tallies(),
        start=SpiderStart(),
        news=parts.news,
    )

    assert maintenance._between(1.0) == seconds


class Members(Plain):
    """A spider that can log in."""

    def login(self):
        """Yield a request that logs in."""
        yield Request(f"{URL}/login")


class LoginTable:
    """Says that this worker is to log in, and counts logins."""

    def __init__(self) -> None:
        self.renewed: list[bool] = []

    async def begin_login(self, generation: int) -> Turn:
        """Let this worker log in."""
        return Turn(is_mine=True, generation=generation)

    async def end_login(self, *, renewed: bool) -> int:
        """Note how it went."""
        self.renewed.append(renewed)
        return 1


def test_an_expired_session_gives_work_back_and_one_login_renews_it():
    """Several pages that find the session expired are given back, and the spider logs in once."""

    async def run() -> tuple[Any, ...]:
        parts, sessions = Parts(Members), Sessions()
        parts.graph.sessions = table = LoginTable()

        opened = []

        def crawl(request: Request) -> None:
            opened.append(request_legs.pop(request))
            parts.queue.push_follow_up(request, opened[-1])

        parts.crawler.engine.crawl = crawl
        logins = Logins(
            parts.graph,
            parts.active,
            parts.queue,
            crawler=parts.crawler,
            spider=parts.spider,
            sessions=sessions,
            news=parts.news,
        )
        legs = [parts.claimed(number).open_leg(is_own=True) for number in (1, 2)]
        for leg in legs:
            logins.begin(leg)
            leg.request = Request(URL)
        for leg in legs:
            logins.expired(leg, SessionExpired())
        with running(logins.run()):
            await turns()
            is_waiting = logins.is_under_way
            opened[-1].close()
            await turns()
        outcomes = [leg.execution.outcome for leg in legs]
        return outcomes, is_waiting, logins.is_under_way, table.renewed, sessions.calls

    assert asyncio.run(run()) == ([Outcome.RELEASED] * 2, True, False, [True], ["saved"])


def test_without_a_login_an_expired_session_fails_the_work():
    """The record of the error says what the spider lacks."""

    async def run() -> tuple[Outcome, str]:
        parts = Parts()
        logins = Logins(
            parts.graph,
            parts.active,
            parts.queue,
            crawler=parts.crawler,
            spider=parts.spider,
            sessions=Sessions(),
            news=parts.news,
        )
        leg = parts.claimed().open_leg(is_own=True)
        logins.begin(leg)
        leg.request = Request(URL)
        logins.expired(leg, SessionExpired())
        return leg.execution.outcome, leg.execution.error.message

    outcome, message = asyncio.run(run())

    assert outcome is Outcome.FAILED
    assert "no login()" in message
