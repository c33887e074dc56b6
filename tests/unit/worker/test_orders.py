"""The loops of a worker, in orders of events that are drawn from seeds, on a clock of their own.

The database is a double, which answers late and loses notifications. `ITEMGRAPH_SEEDS` says how
many seeds are tried, `ITEMGRAPH_SEED` which one is the first.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from support import seeded_loop
from support.claimers import claimer
from support.parts import URL, Graph, Parts, a_claim

from scrapy_itemgraph.connections.session import News
from scrapy_itemgraph.graph.worker_news import WorkerNews
from scrapy_itemgraph.model.operations import CreateItem
from scrapy_itemgraph.model.snapshots import ItemSnapshot
from scrapy_itemgraph.model.tallies import Tallies
from scrapy_itemgraph.model.work import (
    Applied,
    ClaimBudget,
    ClaimResult,
    CommitResult,
    Outcome,
    Remaining,
)
from scrapy_itemgraph.tools.async_tools import cancelled
from scrapy_itemgraph.worker.committer import Committer
from scrapy_itemgraph.worker.limit_sync import LimitSync

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from support.seeded_loop import SeededLoop

    from scrapy_itemgraph.model.operations import Changeset
    from scrapy_itemgraph.worker.claims.claimer import Claimer

SEEDS = int(os.environ.get("ITEMGRAPH_SEEDS", "100"))
FIRST = int(os.environ.get("ITEMGRAPH_SEED", "0"))

DELAYS = (0.0, 0.001, 0.02, 0.05)  # seconds, before the database does something, and after it
ANSWER = 2 * max(DELAYS)  # seconds that an answer takes at most
INTERVAL = 0.2  # ITEMGRAPH_COMMIT_INTERVAL, in seconds
POLL = 1.0  # seconds
MOST_PAGES = 12
ROUNDING = 1e-6  # seconds


class Database(Graph):
    """Pages that lead to others. What it was asked and has told is seen from outside.

    `claimer_asks` and `limits_ask`: a question of the claimer, or about limits, is under way.
    `told_at` is when the worker heard of work after its last question for some.
    """

    def __init__(self, loop: SeededLoop) -> None:
        super().__init__()
        self.draw = loop.draw
        self._now = loop.time
        self.limits = self.job = self
        self.suspects_wait = False
        self.made = 0
        self.pages: list[int] = []  # that may be claimed
        self.waiting_since = 0.0
        self.claimed: set[int] = set()
        self.told_at: float | None = None
        self.unsaved: list[Any] = []  # feedback of sites that nobody has saved yet
        self.claimer_asks = self.limits_ask = self.is_committing = False
        self.topic, self.own_topic = News(), News()
        session = SimpleNamespace(subscribe=lambda _: self.topic)
        process: Any = SimpleNamespace(session=session, own_news=lambda: self.own_topic)
        upkeep: Any = self
        self.news = WorkerNews(process, 1, upkeep)

    def put(self, count: int) -> None:
        """Store so many new pages, unless there are enough."""
        for _ in range(min(count, MOST_PAGES - self.made)):
            self.put_back(self.made)
            self.made += 1

    def put_back(self, number: int) -> None:
        """Have a page wait for a claim."""
        if not self.pages:
            self.waiting_since = self._now()
        self.pages.append(number)

    def tell(self) -> None:
        """Note that the worker hears of work now."""
        if self.told_at is None:
            self.told_at = self._now()

    @contextmanager
    def asked(self, name: str) -> Iterator[None]:
        """Note that an answer is awaited meanwhile."""
        setattr(self, name, True)
        try:
            yield
        finally:
            setattr(self, name, False)

    async def late(self) -> None:
        """Take some time."""
        await asyncio.sleep(self.draw.choice(DELAYS))

    # What the claimer asks

    async def claim(self, budget: ClaimBudget) -> ClaimResult:
        with self.asked("claimer_asks"):
            if not budget.alone:
                self.told_at = None
            await self.late()
            most = 0 if budget.alone else budget.most
            taken, self.pages = self.pages[:most], self.pages[most:]
            self.claimed |= set(taken)
            await self.late()
            return ClaimResult(claims=[self.page(number) for number in taken])

    def page(self, number: int) -> Any:
        data = {"url": URL, "request": {"callback": "parse"}}
        item = ItemSnapshot(id=str(number), aliases=(), tags={}, data=data)
        return a_claim(number, item=item, is_in_flight=self.draw.random() < 0.5)

    def of_claim(self, _: Any) -> tuple[int, ...]:
        return ()

    async def learn(self) -> bool:
        with self.asked("claimer_asks"):
            await self.late()
            return False

    async def remaining(self) -> Remaining:
        with self.asked("claimer_asks"):
            await self.late()
            claimable, claimed = bool(self.pages), bool(self.claimed)
            await self.late()
            return Remaining(claimable=claimable, claimed=claimed, sweeping=False, next_retry=None)

    # What others ask

    async def commit(self, changesets: Sequence[Changeset], **_: Any) -> CommitResult:
        with self.asked("is_committing"):
            await self.late()
            before = self.made
            for one in changesets:
                if one.claim is not None:
                    self.claimed.discard(one.claim.item_id)
                if one.outcome is Outcome.RELEASED:
                    self.put_back(one.claim.item_id)
                else:
                    self.put(self.draw.choice((0, 1, 1, 2)))
            await self.late()
            released = any(one.outcome is Outcome.RELEASED for one in changesets)
            if self.made > before or released:
                self.tell()
            applied = [Applied(outcome=one.outcome) for one in changesets]
            return CommitResult(applied=applied, is_written=True)

    async def put_in_flight(self, _: Any) -> None:
        await self.late()

    async def renew(self, _: Any) -> dict[int, Any]:
        with self.asked("limits_ask"):
            await self.late()
            return {}

    async def save_feedback(self, _: Any) -> None:
        with self.asked("limits_ask"):
            await self.late()

    def hear(self) -> None:
        """Take note of news for the worker's job."""


class World:
    """A worker, the engine, and others who put pages into the database."""

    def __init__(self, loop: SeededLoop) -> None:
        self.loop, self.draw = loop, loop.draw
        self.parts = parts = Parts()
        parts.graph = parts.sessions.graph = self.database = Database(loop)
        self.made: Claimer = claimer(parts)
        self.asks = asyncio.Event()  # the engine asks for requests
        parts.ready.wake_engine = self.asks.set
        nextcall = SimpleNamespace(schedule=self.asks.set)
        parts.crawler.engine._slot = SimpleNamespace(nextcall=nextcall)
        self.committer = Committer(
            self.database,
            parts.outbox,
            parts.active,
            parts.ready,
            sessions=parts.sessions,
            callbacks=parts.callbacks,
            enqueuer=SimpleNamespace(applied=self.applied),
            news=parts.news,
            stats=parts.crawler.stats,
            tallies=Tallies(),
            interval=INTERVAL,
        )
        self.limit_sync = LimitSync(
            self.database,
            parts.limiters,
            parts.active,
            parts.queue,
            gate=parts.gate,
            feedback=SimpleNamespace(unsaved=self.database.unsaved),
            news=parts.news,
        )
        self.downloads: set[asyncio.Task[None]] = set()
        self._uncommitted_since: float | None = None

    async def applied(self, *_: Any, **__: Any) -> None:
        """Hear of what was committed."""

    async def engine(self) -> None:
        """Start what the worker has, whenever it is woken, and each five seconds."""
        while True:
            self.asks.clear()
            while (popped := self.parts.ready.pop(lambda _: True)) is not None:
                self.made.wake()
                request, leg = popped
                leg.handed_out(request)
                download = asyncio.ensure_future(self.download(leg))
                self.downloads.add(download)
                download.add_done_callback(self.downloads.discard)
            self.made.wake()
            await seeded_loop.within(self.asks, 5.0)

    async def download(self, leg: Any) -> None:
        await asyncio.sleep(self.draw.choice((0.0, 0.01, 0.2)))
        leg.fetched()
        leg.close()

    async def inline(self) -> None:
        """Download something beside the crawl now and then, which has the engine ask."""
        for _ in range(20):
            await asyncio.sleep(self.draw.uniform(0.0, 0.6))
            leg = self.parts.active.begin().open_leg()
            await asyncio.sleep(self.draw.choice((0.0, 0.01)))
            if self.draw.random() < 0.3:
                self.parts.active.apply([CreateItem("BESIDE")], "beside")
            leg.close()
            if self.draw.random() < 0.2:  # the database was away, or somebody else logs in
                self.parts.active.release()
            self.asks.set()
            self.database.unsaved.append("answer")
            self.parts.limiters.wanted.set()

    async def others(self) -> None:
        """Put pages into the database; every second time the worker is not told."""
        self.database.put(1)
        for _ in range(5):
            await asyncio.sleep(self.draw.uniform(0.0, 2.0))
            self.database.put(1)
            if self.draw.random() < 0.5:
                await self.database.late()
                self.database.tell()
                self.database.topic.tell()

    async def end(self) -> None:
        """Have all that others do come to its end, and then the run."""
        await asyncio.gather(self.others(), self.inline())
        self.parts.start.end()
        self.parts.news.set()
        await self.parts.over.wait()
        assert not self.database.pages, "work is left at the end"
        assert not self.database.claimed, "claims are left at the end"
        assert self.parts.active.is_quiet, "something is under way at the end"

    def check(self) -> None:
        """Look at what nobody may wait for, at a moment at which everybody waits."""
        now, database, parts, made = self.loop.now, self.database, self.parts, self.made
        # A turn of suspects waits for what is under way or written, and then for one answer.
        is_drained = not (parts.active.under_way or parts.outbox.pending or parts.ready.is_writing)
        assert not (is_drained and parts.ready.is_holding and not database.claimer_asks)
        is_full = len(parts.ready) > made.pace.enough
        has_room = not (is_full or made._rest() or parts.ready.is_holding)
        if database.pages and has_room and not database.claimer_asks:
            assert database.told_at is None, "a claim does not follow what the worker was told"
            waited = now - database.waiting_since
            assert waited <= POLL + 4 * ANSWER + ROUNDING, f"pages waited {waited} s for a poll"
        if database.told_at is not None and database.pages and has_room:
            waited = now - database.told_at
            assert waited <= ANSWER + ROUNDING, f"a claim came {waited} s after the news"
        if not parts.outbox or database.is_committing:
            self._uncommitted_since = None
        elif self._uncommitted_since is None:
            self._uncommitted_since = now
        else:
            waited = now - self._uncommitted_since
            assert waited <= INTERVAL + ROUNDING, f"changesets waited {waited} s for a commit"
        assert not database.unsaved or database.limits_ask, "limits are not told of answers"
        is_writing = parts.ready.is_writing or database.is_committing
        may_start = len(parts.ready) and not parts.ready.is_holding
        assert is_writing or not may_start, "requests wait for the engine"


async def crawl(loop: SeededLoop) -> None:
    """Crawl to the end of the run, and look meanwhile that nobody waits for nothing."""
    world = World(loop)
    made = world.made
    loop.idle = world.check
    duties = [
        asyncio.ensure_future(one)
        for one in (
            made.run(),
            made.listen(),
            made.hear(),
            made.watch_room(),
            world.committer.run(),
            world.committer.feed_starved(),
            world.limit_sync.run(),
            world.engine(),
        )
    ]
    ended = asyncio.ensure_future(world.end())
    try:
        async with asyncio.timeout(90):
            await asyncio.wait([ended, *duties], return_when=asyncio.FIRST_COMPLETED)
        for one in (ended, *duties):
            if one.done():
                one.result()
    finally:
        await cancelled([ended, *duties, *world.downloads])


def test_no_order_of_events_lets_work_wait():
    """A claim follows one answer after news, nothing waits past its poll, and the run ends."""
    for seed in range(FIRST, FIRST + SEEDS):
        try:
            seeded_loop.run(seed, crawl)
        except Exception as error:
            raise AssertionError(f"ITEMGRAPH_SEED={seed}: {error!r}") from error
