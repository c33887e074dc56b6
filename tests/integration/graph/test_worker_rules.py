"""Rules as a worker has them: read with a claim, compiled once, heard of as they change."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from support import steering
from support.races import ended
from support.statements import named

from scrapy_itemgraph import CreateItem, task
from scrapy_itemgraph.exceptions import ConfigurationError
from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.graph.worker_graph import WorkerGraph
from scrapy_itemgraph.model import rule_matching
from scrapy_itemgraph.model.rules import PageRule, Ruleset
from scrapy_itemgraph.model.tasks import discover
from scrapy_itemgraph.model.work import ClaimBudget, Outcome
from scrapy_itemgraph.settings import Settings
from scrapy_itemgraph.store.registry import rulesets

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.server

JUNK = PageRule(match="/junk/", skip=True)


class Books:
    @task(tags=["book"])
    def parse(self, response, item): ...


@asynccontextmanager
async def worker(database: str) -> AsyncIterator[WorkerGraph]:
    """Start a worker with work for nine pages, and have it end."""
    settings = Settings.of(database_url=database)
    graph = await WorkerGraph.open(settings, crawl="books", spider="s", tasks=discover(Books))
    try:
        made = [
            CreateItem(f"B{n}", tags=["book"], data={"url": f"http://a/junk/{n}"})
            for n in "123456789"
        ]
        await graph.commits.seed(made)
        yield graph
    finally:
        await graph.close("finished")


async def claim(graph: WorkerGraph):
    """Claim one page."""
    (one,) = (await graph.claims.claim(ClaimBudget(most=1))).claims
    return one


def put(database: str, *rules: PageRule) -> int:
    """Put rules in force, as somebody else."""
    with ItemGraph.open(database, "books") as graph:
        graph.apply([])  # the crawl is there
        return graph.rules.put(Ruleset(rules=rules), by="ann").id


def test_a_crawl_without_rules_sends_nothing_of_them(database):
    """MNB-12: who has no rules pays for none: no statement more, of claims and of commits."""

    async def run() -> set[str]:
        async with worker(database) as graph:
            with named() as sent:
                one = await claim(graph)
                await graph.commits.commit([ended(one)])
                assert graph.rules.of(one) is None
                return set(sent)

    sent = asyncio.run(run())

    assert "claims.BEFORE_CLAIM" in sent
    assert {one for one in sent if "rule" in one} == set()
    assert "attempts.RECORD_ATTEMPTS" in sent


def test_rules_are_read_once_for_all_claims_that_keep_to_them(database):
    """MNB-12: a claim has the rules that are in force then; one of before keeps its own."""

    async def run() -> None:
        async with worker(database) as graph:
            bare = await claim(graph)
            number = put(database, JUNK)
            with named() as sent:
                first = await claim(graph)
                assert "rulesets.ONE" in sent
            with named() as sent:
                second = await claim(graph)
                assert "rulesets.ONE" not in sent
            assert (bare.ruleset_id, first.ruleset_id, second.ruleset_id) == (None, number, number)
            assert graph.rules.of(first).skips("http://a/junk/1")
            await graph.commits.commit([ended(first, outcome=Outcome.SKIPPED), ended(bare)])

    asyncio.run(run())

    rows = steering.committed(database, _attempts)
    assert rows == [("skipped", True, "skipped"), ("ok", False, None)]


def _attempts(connection):
    found = connection.exec_driver_sql(
        "SELECT a.outcome, a.ruleset_id IS NOT NULL, r.hold FROM attempts a "
        "JOIN results r USING (item_id, task_id) ORDER BY a.id"
    )
    return [tuple(row) for row in found]


def test_a_worker_hears_of_other_rules_at_once_and_waits_for_each_once(database):
    """MNB-12: it is told by NOTIFY, or by what it reads each second where nobody can tell it."""

    async def run() -> None:
        async with worker(database) as graph:
            await claim(graph)
            waiting = asyncio.create_task(graph.rules.wait_for_others())
            await asyncio.sleep(0)
            assert not waiting.done()
            put(database, JUNK)
            await asyncio.wait_for(waiting, 30)
            again = asyncio.create_task(graph.rules.wait_for_others())
            await asyncio.sleep(0.05)
            assert not again.done()
            graph.rules.see(-1)  # as a round of upkeep reads it
            await asyncio.wait_for(again, 30)
            await claim(graph)

    asyncio.run(run())


def test_a_worker_without_google_re2_ends_with_what_to_install(database, monkeypatch):
    """MNB-11: it does not crawl on as if there were no rules; without any it needs nothing."""

    def without_re2(name, *rest):
        raise ImportError(name)

    async def run() -> None:
        async with worker(database) as graph:
            put(database, JUNK)
            monkeypatch.setattr(rule_matching, "import_module", without_re2)
            with pytest.raises(ConfigurationError, match="scrapy-itemgraph\\[rules\\]"):
                await claim(graph)

    asyncio.run(run())


def test_of_two_who_change_rules_at_once_one_is_told(database):
    """MNB-12: a ruleset follows the one that it was made from; who was outrun makes it anew."""
    put(database, JUNK)

    def twice(connection):
        crawl = connection.exec_driver_sql("SELECT id FROM crawls").scalar_one()
        new = Ruleset(rules=(JUNK, JUNK))
        first = rulesets.put(connection, crawl, new, after=1, by="ann")
        return first.number, rulesets.put(connection, crawl, new, after=1, by="bob")

    assert steering.committed(database, twice) == (2, None)
