"""What a worker sends while it claims, commits and creates: nothing whose plan is not pinned."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from support.plans import BUDGETS
from support.races import ended
from support.statements import named

from scrapy_itemgraph import task
from scrapy_itemgraph.graph.worker_graph import WorkerGraph
from scrapy_itemgraph.model.limits import SlotTerms, Terms, Use
from scrapy_itemgraph.model.operations import (
    AddTag,
    CreateAlias,
    CreateItem,
    DeleteItem,
    Expire,
    MergeItem,
    RenameItem,
    UpdateData,
    UpdateMetadata,
)
from scrapy_itemgraph.model.tasks import discover
from scrapy_itemgraph.model.work import ClaimBudget, ErrorRecord, InFlight, Outcome
from scrapy_itemgraph.settings import Settings

# The ping of SQLAlchemy's pool, and the ends of a transaction.
BOUNDS = {";", "engine.START", "COMMIT"}
ERROR = ErrorRecord(type="ValueError", message="no price")


class Books:
    @task(tags=["book"], max_failures=50)
    def parse(self, response, item): ...

    @task(tags=["cover"], exclusive="item")
    def cover(self, response, item): ...


def book(name: str, tag: str = "book") -> CreateItem:
    """Return an operation that makes an item with work, in one of three slots."""
    url = f"http://s{len(name) % 3}.example/{name}"
    return CreateItem(name, tags=[tag], data={"url": url})


async def crawl(graph: WorkerGraph) -> None:
    """Do what a crawl does: seeds, claims and commits of every kind, limits, what is given back."""
    await graph.commits.seed([book("b" * number) for number in range(1, 13)])
    budget = ClaimBudget(
        most=9, slot_terms=SlotTerms(Terms(concurrency=4)), in_flight=InFlight(room=9)
    )
    taken = await graph.claims.claim(budget)
    done = taken.claims
    assert len(done) == 9
    uses = [Use(limit_id=one.limit_id, declared=Terms(concurrency=4)) for one in taken.grants]
    await graph.limits.renew(uses)
    ways = [
        [UpdateMetadata({"a": 1}), UpdateData({"n": 1}), book("new", "cover"), book("bb")],
        [RenameItem(to="renamed"), CreateAlias("alias")],
        [MergeItem(into="b")],
        [DeleteItem(), book("after")],
        [DeleteItem(forget=False)],
        [Expire(), AddTag("cover")],
    ]
    commits = [ended(claim, *way) for claim, way in zip(done, ways, strict=False)]
    hour = timedelta(hours=1)
    commits += [
        ended(done[6], outcome=Outcome.FAILED, error=ERROR),
        ended(done[7], outcome=Outcome.RETRY, error=ERROR, delay=hour),
    ]
    result = await graph.commits.commit(commits, in_flight=[])
    assert [one.error for one in result.applied[:6]] == [None] * 6
    assert await graph.claims.release([done[8]]) == 1
    rooms = {one.limit_id: 4 for one in taken.grants}
    (await graph.claims.claim(ClaimBudget(most=3, rooms=rooms, slot_terms=budget.slot_terms)))
    await graph.claims.claim(ClaimBudget(most=3, alone=True))


def test_a_worker_sends_no_statement_whose_plan_is_not_pinned(database):
    """Each statement of claims, commits and creates has a plan that is held to a budget of rows."""

    async def run() -> set[str]:
        settings = Settings.of(database_url=database)
        graph = await WorkerGraph.open(
            settings, crawl="books", spider="spider", tasks=discover(Books)
        )
        try:
            with named() as sent:
                await crawl(graph)
                return set(sent)
        finally:
            await graph.close("finished")

    sent = asyncio.run(run())

    assert {"pick_work.HEADS_BESIDE_CLAIMS", "claims.TAKE", "flush.INSERT_ITEMS"} <= sent
    assert sent - set(BUDGETS) - BOUNDS == set()
