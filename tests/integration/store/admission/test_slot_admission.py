"""Which slots a claim takes work from."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
import sqlalchemy as sa
from support import races
from support.admissions import (
    BATCH,
    FREE,
    SECOND,
    Worker,
    fill,
    held_by,
    hold,
    host,
    hosts_of,
    number_of,
)
from support.graphs import Crawl

from scrapy_itemgraph import task
from scrapy_itemgraph.graph.worker_graph import WorkerGraph
from scrapy_itemgraph.model import tasks
from scrapy_itemgraph.model.limits import LOOKAHEAD, SlotFeedback, SlotTerms, Terms, Use
from scrapy_itemgraph.model.operations import CreateItem
from scrapy_itemgraph.model.work import ClaimBudget
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres.pipelining import PipelinedConnection
from scrapy_itemgraph.settings import Settings
from scrapy_itemgraph.store import queues
from scrapy_itemgraph.store.admin import limit_changes
from scrapy_itemgraph.store.limits import holdings
from scrapy_itemgraph.store.worklist import claims
from scrapy_itemgraph.store.worklist.admission import Admission


def queue_rows(crawl) -> dict:
    """Return the queues of hosts: {host: (holder, seconds until its turn)}."""
    rows = crawl.rows(
        "SELECT l.name, q.holder, extract(epoch FROM q.next_at - clock_timestamp()) AS turn_in "
        "FROM queues q JOIN limits l ON l.id = q.slot_id WHERE q.crawl_id = :crawl",
        crawl=crawl.id,
    )
    return {row.name: (row.holder, float(row.turn_in)) for row in rows}


# What may start soon


@pytest.mark.parametrize(("gap", "most"), [(5.0, 1), (0.2, 2), (0.16, 2), (0.05, 7)])
def test_only_what_may_start_soon_is_claimed(crawl, gap, most):
    """Of a slot with a delay a claim takes as much as may start within the time looked ahead."""
    fill(crawl, ["a.example"], each=20)

    claimed = Worker(crawl, Terms(gap=gap)).claim()

    assert most - 1 <= len(claimed) <= most
    assert claimed


def test_what_may_not_start_soon_is_not_claimed(crawl):
    """A free slot whose delay is not over is left, and it is said when to look again."""
    fill(crawl, ["a.example"], each=2)
    worker = Worker(crawl, Terms(gap=5.0))
    number = number_of(crawl, "a.example")
    hold(crawl, worker.number, number, worker.terms)
    uses = [Use(limit_id=number, declared=worker.terms, wants=0, last_ago=1.0)]
    holdings.renew(crawl.connection, worker.number, uses)

    assert worker.claim() == []
    assert worker.admission.again_in == pytest.approx(4.0 - LOOKAHEAD, abs=0.2)
    assert held_by(crawl, worker.number) == set()


def test_a_slot_is_claimed_from_as_far_as_there_is_room(crawl):
    """Of a slot in hand a claim takes what the worker has use for, and no more."""
    fill(crawl, ["a.example", "b.example"], each=5)
    worker = Worker(crawl)
    worker.claim()
    first, second = (number_of(crawl, f"{one}.example") for one in "ab")

    assert hosts_of(worker.claim(rooms={first: 0, second: 2})) == ["b.example"] * 2
    assert worker.claim(rooms={first: 0, second: 0}) == []


def test_nothing_is_limited_without_limits(crawl):
    """Slots without a delay or a cap are claimed from as ever, and nobody has them."""
    fill(crawl, ["a.example"], each=30)

    assert len(Worker(crawl, FREE).claim()) == BATCH
    assert held_by(crawl, crawl.worker) == set()
    assert queue_rows(crawl)["a.example"][0] is None


def test_a_capped_slot_is_shared(crawl, other):
    """A slot with a cap alone is nobody's own: each worker claims from it with its units."""
    fill(crawl, ["a.example"], each=6)
    terms = Terms(concurrency=4)

    assert len(Worker(crawl, terms).claim(2)) == 2
    assert len(Worker(crawl, terms, other).claim(2)) == 2
    assert queue_rows(crawl)["a.example"][0] is None


# Slots in other hands


def test_a_claimed_slot_is_its_claimers_own(crawl, other):
    """Nobody else looks into the queue of a slot that a worker has, until that gives it up."""
    fill(crawl, ["a.example"], each=3)
    holder, heir = Worker(crawl), Worker(crawl, number=other)

    assert len(holder.claim()) == 1
    assert queue_rows(crawl)["a.example"][0] == holder.number
    assert heir.claim() == []
    assert heir.admission.grants == {}
    holder.give_up()
    assert queue_rows(crawl)["a.example"][0] is None
    assert len(heir.claim()) == 1


@pytest.mark.parametrize("whose", ["this crawl's", "another crawl's"])
def test_slots_in_other_hands_do_not_hide_free_ones(connection, crawl, other, whose):
    """One claim finds the few slots that are free behind many that others have."""
    taken = [host(n) for n in range(60)]
    fill(crawl, taken, each=2)
    if whose == "this crawl's":
        holder = Worker(crawl, number=other)
        while holder.claim():
            pass
    else:
        films = Crawl(connection, "films", "cinema")
        for one in taken:
            hold(crawl, films.worker, number_of(crawl, one))
    free = [host(n, "free") for n in range(3)]
    fill(crawl, free, each=2)

    claimed = Worker(crawl).claim()

    assert sorted(hosts_of(claimed)) == free


def test_a_slot_that_is_decided_about_is_looked_at_again_soon(engine):
    """What another transaction has locked is passed over for the moment, not for long."""
    shop = races.Crawl(engine, Shop)
    shop.seed(CreateItem("A", tags=["page"], data={"url": "http://a.example/"}))
    ((number,),) = shop.rows("SELECT id FROM limits WHERE name = 'a.example'")
    one, two = shop.worker(), shop.worker()
    with races.actors(engine, 2) as (deciding, claiming):
        deciding.run(holdings.renew, one, [Use(limit_id=number, declared=SECOND)])
        admission = Admission(slot_terms=SlotTerms(SECOND))

        def claim(connection):
            engines.hot_path(connection)
            return claims.claim(
                connection,
                crawl_id=shop.id,
                worker_id=two,
                tasks=shop.tasks,
                limit=BATCH,
                admission=admission,
            )

        assert claiming.run(claim) == []
        claiming.commit()
        deciding.commit()

    assert admission.again_in is not None
    assert admission.again_in <= 1.0


class Shop:
    @task(tags=["page"])
    def parse(self, response, item): ...


# Claims whose answer is lost


def test_a_claim_that_is_undone_leaves_no_limits(crawl, other):
    """What only the lost try took is free for anybody; what the worker knows of stays its own."""
    fill(crawl, ["known.example"], each=2)
    worker = Worker(crawl)
    worker.claim()
    known = number_of(crawl, "known.example")
    fill(crawl, ["a.example", "b.example"])
    assert worker.claim(rooms={known: 0}) != []

    claims.unclaim(crawl.connection, [one.token for one in worker.claims], worker.number)
    holdings.keep_only(crawl.connection, worker.number, [known])

    assert held_by(crawl, worker.number) == {"known.example"}
    holders = {one: holder for one, (holder, _) in queue_rows(crawl).items()}
    assert holders == {"known.example": worker.number, "a.example": None, "b.example": None}
    assert sorted(Worker(crawl, number=other).claim()) == ["a.example/0", "b.example/0"]


@pytest.mark.parametrize("terms", [SECOND, Terms(concurrency=1)])
def test_a_claim_whose_answer_was_lost_takes_its_work_and_limits_again(
    database, terms, monkeypatch
):
    """The second try claims what the first one did, though that had taken the slot."""
    commit = PipelinedConnection.commit
    lost = []

    def lose(connection) -> None:
        commit(connection)
        lost.append(connection)
        monkeypatch.undo()
        gone = psycopg.OperationalError("the connection is lost")
        raise sa.exc.DBAPIError.instance(
            None, None, gone, psycopg.Error, connection_invalidated=True
        )

    async def run():
        found = tasks.discover(Shop)
        settings = Settings.of(database_url=database)
        graph = await WorkerGraph.open(settings, crawl="books", spider="spider", tasks=found)
        try:
            await graph.commits.seed(
                [CreateItem("A", tags=["page"], data={"url": "http://a.example/"})]
            )
            budget = ClaimBudget(most=1, slot_terms=SlotTerms(terms))
            monkeypatch.setattr(PipelinedConnection, "commit", lose)
            result = await graph.claims.claim(budget)
            return [one.item.id for one in result.claims], [one.units for one in result.grants]
        finally:
            await graph.close("finished")

    assert asyncio.run(run()) == (["A"], [1])
    assert len(lost) == 1


# Blocked slots


@pytest.mark.parametrize("beside", [0, 2])
def test_a_blocked_slot_is_put_off(crawl, beside):
    """Nobody looks into a blocked slot until its block is over, whatever else there is."""
    fill(crawl, ["blocked.example", *(host(n) for n in range(beside))], each=3)
    answer = SlotFeedback(slot="blocked.example", blocked_for=60.0, blocked_by="http 429")
    holdings.save_feedback(crawl.connection, crawl.worker, [answer])

    assert len(Worker(crawl).claim()) == beside

    _, turn_in = queue_rows(crawl)["blocked.example"]
    assert turn_in == pytest.approx(60.0, abs=1.0)


@pytest.mark.parametrize("terms", [SECOND, Terms(concurrency=8)])
def test_a_block_that_is_lifted_lets_its_slot_be_claimed(crawl, terms):
    """Work of a blocked slot is found as soon as a person lifts the block."""
    fill(crawl, ["a.example"])
    answer = SlotFeedback(slot="a.example", blocked_for=60.0, blocked_by="http 429")
    holdings.save_feedback(crawl.connection, crawl.worker, [answer])
    worker = Worker(crawl, terms)

    assert worker.claim() == []
    assert worker.admission.again_in == pytest.approx(60.0, abs=1.0)
    limit_changes.unblock(crawl.connection, "a.example")
    assert worker.claim() == ["a.example/0"]


@pytest.mark.parametrize("number", [2, 40, 400])
def test_blocked_slots_do_not_keep_claims_busy(crawl, number):
    """Many blocked slots are put off within a few claims, which then say when to look again."""
    blocked = [host(n) for n in range(number)]
    fill(crawl, blocked)
    answers = [SlotFeedback(slot=one, blocked_for=60.0, blocked_by="http 429") for one in blocked]
    holdings.save_feedback(crawl.connection, crawl.worker, answers)
    worker = Worker(crawl)

    for _ in range(3):
        assert worker.claim() == []

    assert worker.admission.again_in > 30
    assert worker.admission.grants == {}


def test_a_turn_that_a_clock_set_back_put_far_off_is_mended(crawl):
    """Nobody puts a turn off for so long; what is put off for minutes stays so."""
    fill(crawl, ["a.example", "b.example"])
    worker = Worker(crawl)
    for name, seconds in (("a.example", 3600), ("b.example", 240)):
        moved = (
            "UPDATE queues SET next_at = now() + make_interval(secs => :seconds) "
            "WHERE slot_id = (SELECT id FROM limits WHERE name = :name)"
        )
        crawl.connection.execute(sa.text(moved), {"name": name, "seconds": seconds})
    assert worker.claim() == []

    queues.mend(crawl.connection, crawl.id)

    assert worker.claim() == ["a.example/0"]


def test_a_block_does_not_hide_other_slots(crawl):
    """One claim finds what may go behind many slots that may not."""
    blocked = [host(n) for n in range(60)]
    fill(crawl, blocked)
    answers = [SlotFeedback(slot=one, blocked_for=60.0, blocked_by="http 429") for one in blocked]
    holdings.save_feedback(crawl.connection, crawl.worker, answers)
    fill(crawl, ["free.example"])

    assert Worker(crawl).claim() == ["free.example/0"]
