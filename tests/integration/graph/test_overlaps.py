"""What happens at once: expiries beside claims, failures beside merges, answers that are lost."""

from __future__ import annotations

import sys
from datetime import timedelta

import pytest
from support import graphs, races

from scrapy_itemgraph import (
    CreateItem,
    DeleteItem,
    Expire,
    MergeItem,
    StoreResult,
    UpdateData,
    task,
)
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.store import attempts
from scrapy_itemgraph.store.admin import crawl_changes
from scrapy_itemgraph.store.registry import crawls
from scrapy_itemgraph.store.worklist import claims

pytestmark = pytest.mark.server

LOAD = sys.modules["scrapy_itemgraph.changesets.load"]
FLUSH = sys.modules["scrapy_itemgraph.changesets.flush"]


class Books:
    """One task of a book."""

    @task(tags=["book"])
    def parse(self, response, item): ...


def book(name: str) -> CreateItem:
    """Return a seed."""
    return CreateItem(name, tags=["book"], data={"url": f"http://here.example/{name}"})


@pytest.fixture
def crawl(engine) -> races.Crawl:
    """Return a crawl with the one task."""
    return races.Crawl(engine, Books)


@pytest.mark.parametrize("where", [LOAD.LOCK, FLUSH.UPDATE_ITEMS], ids=["early", "late"])
@pytest.mark.parametrize("first", ["stale", "never run"])
def test_an_expiry_that_commits_after_a_claim_outlives_it(engine, crawl, first, where):
    """New data and its Expire, begun before a claim that cannot see them, are worked on again."""
    crawl.seed(book("A"))
    worker = crawl.worker()
    if first == "stale":
        (claim,) = crawl.claimed(worker)
        with engine.begin() as connection:
            crawl.apply(connection, races.ended(claim))
        crawl.seed(Expire(id="A"))

    with races.actors(engine, 2) as (one, two):
        one.pause_before(where)
        one.start(
            lambda connection: crawl.operate(
                connection, UpdateData({"new": 1}, id="A"), Expire(id="A", task="parse")
            )
        )
        one.until_paused()
        claims = two.run(lambda connection: crawl.claim(connection, worker))
        two.commit()
        one.resume()
        one.commit()
    blind = [claim for claim in claims if "new" not in claim.item.data]
    with engine.begin() as connection:
        crawl.apply(connection, *(races.ended(claim) for claim in blind))

    assert crawl.outstanding()


def test_ageing_a_crawl_keeps_the_expiry_of_what_is_claimed(engine, crawl):
    """`age` while a pair is claimed and expired does not make the claim's commit clear that."""
    crawl.seed(book("A"))
    (claim,) = crawl.claimed(crawl.worker())
    crawl.seed(Expire(id="A"))
    with engine.begin() as connection:
        crawl_changes.age(connection, crawl.id, timedelta(days=1))

    with engine.begin() as connection:
        crawl.apply(connection, races.ended(claim))

    assert crawl.outstanding()


def test_a_claim_whose_answer_was_lost_is_undone_also_while_it_still_commits(engine, crawl):
    """Asked for again while the server is still committing, a claim leaves nothing unknown."""
    crawl.seed(book("A"), book("B"))
    worker = crawl.worker()
    tokens = claims.new_tokens(1)

    def claim(connection, *, is_again):
        engines.hot_path(connection)
        if is_again:
            crawls.share_crawl(connection, crawl.id)
            claims.unclaim(connection, tokens, worker)
        return claims.claim(
            connection,
            crawl_id=crawl.id,
            worker_id=worker,
            tasks=crawl.tasks,
            tokens=tokens,
            limit=1,
        )

    with races.actors(engine, 2) as (one, two):
        one.run(lambda connection: claim(connection, is_again=False))
        answer = two.start(lambda connection: claim(connection, is_again=True))
        two.until_blocked()
        one.commit()
        known = answer.result()
        two.commit()

    claimed = {name for name, _, is_claimed in crawl.outstanding() if is_claimed}
    assert {claim.item.id for claim in known} == claimed


def test_the_end_of_a_claim_is_found_on_the_item_that_survived(engine, crawl):
    """An execution that merged its item is on record although the item is gone."""
    crawl.seed(book("A"), book("B"))
    claims = crawl.claimed(crawl.worker())
    merging = next(claim for claim in claims if claim.item.id == "A")
    with engine.begin() as connection:
        crawl.apply(connection, races.ended(merging, MergeItem(into="B")))

    with engine.begin() as connection:
        recorded = attempts.recorded(connection, [merging], crawl.id)

    assert recorded == {(merging.item_id, merging.task_id): "ok"}


@pytest.mark.parametrize(
    "handling",
    [Expire(id="B", task="price"), StoreResult({"x": 1}, id="B", task="price")],
    ids=["Expire", "StoreResult"],
)
def test_what_follows_a_merge_handles_the_failures_that_it_brought(connection, handling):
    """A failure that came with a merged result is handled by a later operation on it."""
    crawl = graphs.Crawl.of(
        connection, parse={"tags": ["page"]}, price={"tags": ["page"], "max_failures": 1}
    )
    crawl.failed("A", "price")
    crawl.work("B")

    crawl.end(crawl.claimed("A", "parse"), MergeItem(into="B"), handling)

    assert crawl.failures() == []


def test_a_failure_goes_no_further_than_its_result(connection):
    """Through a chain of merges a failure stays with its result, and goes with it where it goes."""
    crawl = graphs.Crawl.of(connection, parse={"tags": ["page"]})
    crawl.failed("A")
    crawl.work("B")
    crawl.done("C")

    crawl.do(MergeItem(id="A", into="B"), MergeItem(id="B", into="C"))

    assert crawl.state("C") == "fresh"
    assert crawl.failures() == []


def test_attempts_go_with_a_deleted_item(connection):
    """Ephemeral items leave no attempts behind."""
    crawl = graphs.Crawl.of(connection)
    claim = crawl.claimed("P")
    crawl.failed("Q")

    crawl.end(claim, DeleteItem())
    crawl.do(DeleteItem("Q"))

    assert crawl.rows("SELECT count(*) FROM attempts") == [(0,)]
