"""How often a worker waits for its database: in a claim, a commit, a note of what is in flight."""

from __future__ import annotations

from support import round_trips
from support.races import ended

from scrapy_itemgraph import task
from scrapy_itemgraph.graph.worker_graph import WorkerGraph
from scrapy_itemgraph.model.limits import SlotTerms, Terms
from scrapy_itemgraph.model.operations import CreateItem
from scrapy_itemgraph.model.tasks import discover
from scrapy_itemgraph.model.work import ClaimBudget, InFlight
from scrapy_itemgraph.settings import Settings

TERMS = SlotTerms(Terms(concurrency=32))


class Books:
    @task(tags=["book"])
    def parse(self, response, item): ...


def book(name):
    """Return an operation that makes an item with work."""
    return CreateItem(name, tags=["book"], data={"url": f"http://shop.example/{name}"})


def test_claims_and_commits_wait_for_few_round_trips(database):
    """At a distance each of them costs its time, so that none may come back unnoticed."""

    async def main(url, wire):
        # The session, which a thread of its own uses, does not pass through the wire.
        settings = Settings.of(database_url=url, session_url=database)
        graph = await WorkerGraph.open(
            settings, crawl="books", spider="spider", tasks=discover(Books)
        )
        rooms = {}
        counts = []

        async def counted(waited):
            wire.trips.clear()
            answer = await waited
            return len(wire.trips), answer

        try:
            await graph.commits.seed([book(f"seed {number}") for number in range(30)])
            for turn in range(3):
                budget = ClaimBudget(
                    most=10, rooms=rooms, slot_terms=TERMS, in_flight=InFlight(room=10)
                )
                claim, taken = await counted(graph.claims.claim(budget))
                rooms = {grant.limit_id: 32 for grant in taken.grants} or rooms
                pairs = [(one.item_id, one.task_id) for one in taken.claims]
                note, _ = await counted(graph.commits.put_in_flight(pairs))
                done = [ended(one, book(f"{turn} {one.item.id}")) for one in taken.claims]
                commit, _ = await counted(graph.commits.commit(done, in_flight=[]))
                counts.append({"claim": claim, "note": note, "commit": commit})
        finally:
            await graph.close("finished")
        return counts

    counts = round_trips.run(database, main)

    # The first claim takes the limit of the slot, too, and each connection is asked once where
    # it leads to.
    assert counts[-1] == {"claim": 4, "note": 1, "commit": 6}
