"""Workers of ours whose downloads are only waited for, several in a process.

Each has what a crawl process has: a `WorkerGraph` with connections of its own, claims ahead of
commits by `ClaimPace`, commits of what has gathered, and a step of upkeep a second. It lacks
Scrapy: a download is a timer, and a callback costs nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import sys
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "worklist"))

import ours
import tallies

from scrapy_itemgraph.graph import WorkerGraph
from scrapy_itemgraph.model.tasks import discover
from scrapy_itemgraph.model.work import ClaimBudget, InFlight, Outcome
from scrapy_itemgraph.settings import Settings
from scrapy_itemgraph.worker.claims.claim_pace import ClaimPace

if TYPE_CHECKING:
    from scrapy_itemgraph.model.work import Claim

UPKEEP = 1.0  # seconds between two steps of `worker.maintenance`
POLL = 1.0  # of a claimer that found nothing
LEAST = 25  # of a claim, as `worker.worker` has it


class Waiting:
    """One worker: `concurrency` downloads at a time, each of about `latency` seconds."""

    def __init__(self, graph: WorkerGraph, tally: tallies.Tally, given: dict) -> None:
        settings = graph.connections.settings
        self.graph = graph
        self.tally = tally
        self.latency, self.concurrency = given["latency"], given["concurrency"]
        self.batch, self.interval = (
            settings.worklist.commit_batch,
            settings.worklist.commit_interval,
        )
        self.pace = ClaimPace(max(LEAST, self.concurrency), settings.worklist.claim_batch)
        self.ready: deque[Claim] = deque()
        self.ended: list[Claim] = []
        self.begun: set[tuple[int, int]] = set()
        self.active = 0
        self.handed_out = 0
        self.room, self.added, self.full = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.numbers = itertools.count()
        self.loop = asyncio.get_running_loop()

    async def run(self) -> None:
        """Work until told to stop; what is under way then is given back at the end."""
        parts = [asyncio.ensure_future(one()) for one in (self.claim, self.commit, self.upkeep)]
        over = asyncio.ensure_future(self.tally.over.wait())
        await asyncio.wait([*parts, over], return_when=asyncio.FIRST_COMPLETED)
        if not over.done():
            await asyncio.gather(*parts)  # one of them failed
        claiming, committing, keeping_up = parts
        self.added.set()
        await asyncio.gather(claiming, committing)
        keeping_up.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping_up

    async def claim(self) -> None:
        while not self.tally.is_over:
            self.room.clear()
            batch, unhanded = self.pace.batch, len(self.ready)
            held = self.active + max(0, len(self.ended) - self.batch)
            room = min(batch - unhanded, self.concurrency + batch - held)
            rest = self.pace.due_in(unhanded, time.monotonic())
            if unhanded > batch // 2 or room <= 0 or rest:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.room.wait(), rest or POLL)
                continue
            result = await self.graph.claims.claim(
                ClaimBudget(most=room, in_flight=self.in_flight())
            )
            ran_dry = not self.ready and len(result.claims) == room
            self.ready.extend(result.claims)
            self.hand_out()
            now = time.monotonic()
            crowd = self.graph.upkeep.crowd
            self.pace.claimed(len(self.ready), self.handed_out, now, ran_dry=ran_dry, crowd=crowd)
            if not result.claims:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(POLL * self.graph.upkeep.crowd):
                        await self.graph.news.wait()

    def in_flight(self) -> InFlight:
        """Return what this worker has begun, and how much more it begins at once."""
        return InFlight(pairs=set(self.begun), room=max(0, self.concurrency - self.active))

    def hand_out(self) -> None:
        while self.ready and self.active < self.concurrency:
            claim = self.ready.popleft()
            self.begun.add((claim.item_id, claim.task_id))
            self.active += 1
            self.handed_out += 1
            self.loop.call_later(self.latency * random.uniform(0.5, 1.5), self.end, claim)
        self.room.set()

    def end(self, claim: Claim) -> None:
        """Take note that a page was downloaded and its callback has ended."""
        self.active -= 1
        self.ended.append(claim)
        self.added.set()
        if len(self.ended) >= self.batch:
            self.full.set()
        self.hand_out()

    async def commit(self) -> None:
        while not self.tally.is_over:
            await self.added.wait()
            if len(self.ended) < self.batch and self.ready and self.active:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.full.wait(), self.longest)
            self.added.clear()
            self.full.clear()
            claims, self.ended = self.ended[: self.batch], self.ended[self.batch :]
            if self.ended:
                self.added.set()
            if not claims:
                continue
            self.begun.difference_update((one.item_id, one.task_id) for one in claims)
            following = itertools.islice(self.ready, len(claims))
            in_flight = self.begun | {(one.item_id, one.task_id) for one in following}
            changesets = ours.changesets(claims, self.numbers, self.graph.worker_id)
            result = await self.graph.commits.commit(changesets, in_flight=in_flight)
            if any(one.outcome is not Outcome.OK for one in result.applied):
                raise RuntimeError(f"not committed: {result.applied}")
            self.tally.committed += len(claims)
            self.tally.commits += 1
            self.hand_out()

    @property
    def longest(self) -> float:
        """How long to wait for a batch to fill, as `worker.committer` has it."""
        return min(self.interval * self.graph.upkeep.crowd, 0.5)

    async def upkeep(self) -> None:
        while True:
            await asyncio.sleep(UPKEEP * self.graph.upkeep.crowd * random.uniform(0.9, 1.1))
            await self.graph.upkeep.keep_up()


async def open_graph(given: dict) -> WorkerGraph:
    """Join the crawl as one more worker."""
    settings = Settings.of(database_url=given["url"])
    return await WorkerGraph.open(
        settings, crawl=ours.CRAWL, spider=ours.SPIDER, tasks=discover(ours.Pages)
    )


async def main() -> None:
    """Work as the parent asks."""
    given = tallies.given()
    graphs = [await open_graph(given) for _ in range(given["workers"])]
    try:

        async def work(tally: tallies.Tally) -> None:
            await asyncio.gather(*(Waiting(graph, tally, given).run() for graph in graphs))

        await tallies.measured(work, given["warm"], given["seconds"])
    finally:
        await asyncio.gather(*(graph.close("finished") for graph in graphs))


if __name__ == "__main__":
    asyncio.run(main())
