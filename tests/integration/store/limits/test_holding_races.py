"""Workers that take, renew and give up limits at the same moment."""

from __future__ import annotations

from concurrent.futures import as_completed

import pytest
import sqlalchemy as sa
from support import races
from support.limits_held import GAP, WHOLE, held, later, limit

from scrapy_itemgraph import task
from scrapy_itemgraph.model import limits
from scrapy_itemgraph.model.limits import SlotFeedback, SlotTerms, Terms, Use
from scrapy_itemgraph.model.operations import CreateItem, UpdateData
from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store import queues
from scrapy_itemgraph.store.limits import declared as declared_limits
from scrapy_itemgraph.store.limits import holdings
from scrapy_itemgraph.store.worklist import claims
from scrapy_itemgraph.store.worklist.admission import Admission

pytestmark = pytest.mark.server


class Shop:
    @task(tags=["page"])
    def parse(self, response, item): ...


@pytest.fixture
def shop(engine) -> races.Crawl:
    """Make a crawl that several connections work on."""
    return races.Crawl(engine, Shop)


@pytest.fixture
def slots(engine) -> list[int]:
    """Make two slots, the first with the lower number."""
    with engine.begin() as connection:
        return [limit(connection, f"{one}.example") for one in "ab"]


def use_of(number, terms=WHOLE, **use):
    """Return what a worker has and wants of a limit."""
    return Use(limit_id=number, declared=terms, **use)


def page(name, host="a.example"):
    """Return a seed that calls for work of a slot."""
    return CreateItem(name, tags=["page"], data={"url": f"http://{host}/{name}"})


def limited(shop, connection, worker, terms=WHOLE):
    """Claim with nothing in hand, in the caller's transaction."""
    given = {
        "crawl_id": shop.id,
        "worker_id": worker,
        "tasks": shop.tasks,
        "limit": 25,
        "admission": Admission(slot_terms=SlotTerms(terms)),
    }
    engine.hot_path(connection)
    return claims.claim(connection, **given)


def test_two_that_take_a_limit_at_once(shop, slots, pair):
    """The second leaves out what the first decides about, and is refused when it has decided."""
    first, second = pair
    number, _ = slots
    one, other = shop.worker(), shop.worker()

    taken = first.run(holdings.acquire, one, [use_of(number)])
    left = second.run(holdings.acquire, other, [use_of(number)])
    second.start(holdings.renew, other, [use_of(number)])
    second.until_blocked()
    first.commit()
    refused = second.resume()
    second.commit()

    assert (taken[number].units, left, refused[number].units) == (1, {}, 0)
    assert shop.rows("SELECT worker_id FROM holdings WHERE units > 0") == [(one,)]


def test_a_limit_that_is_being_given_up(shop, slots, pair):
    """Who asks while the holder gives up leaves it out, or waits for that and has it."""
    holder, heir = pair
    number, _ = slots
    one, other = shop.worker(), shop.worker()
    holder.run(holdings.renew, one, [use_of(number)])
    holder.commit()

    holder.run(holdings.renew, one, [use_of(number, wants=0)])
    assert heir.run(holdings.acquire, other, [use_of(number)]) == {}
    heir.start(holdings.renew, other, [use_of(number)])
    heir.until_blocked()
    holder.commit()

    assert heir.resume()[number].units == 1
    heir.commit()


def test_a_worker_that_stops_while_another_asks(shop, slots, pair):
    """Who asks while the holder stops is refused, and has the limit when it asks again."""
    holder, heir = pair
    number, _ = slots
    one, other = shop.worker(), shop.worker()
    holder.run(holdings.renew, one, [use_of(number)])
    holder.commit()

    holder.run(holdings.release_all, one, [])
    assert heir.run(holdings.renew, other, [use_of(number)])[number].units == 0
    heir.commit()
    holder.commit()

    assert heir.run(holdings.renew, other, [use_of(number)])[number].units == 1
    heir.commit()


@pytest.mark.parametrize("terms", [WHOLE, Terms(concurrency=1)])
def test_two_that_find_the_dead_at_once(shop, slots, pair, terms):
    """What a dead worker had is left for one of two that meet it at the same moment."""
    first, second = pair
    number, _ = slots
    dead, one, other = (shop.worker() for _ in range(3))
    first.run(holdings.renew, dead, [use_of(number, terms)])
    first.commit()
    shop.expire_lease(dead)

    first.run(holdings.renew, one, [use_of(number, terms)])
    second.start(holdings.renew, other, [use_of(number, terms)])
    second.until_blocked()
    first.commit()
    assert second.resume()[number].units == 0
    second.commit()
    first.run(later, GAP)
    first.commit()
    second.run(holdings.renew, other, [use_of(number, terms)])
    first.start(holdings.renew, one, [use_of(number, terms)])
    first.until_blocked()
    second.commit()
    first.resume()
    first.commit()

    assert shop.rows("SELECT worker_id, units FROM holdings WHERE units > 0") == [(other, 1)]


def test_the_dead_are_buried_while_another_asks(shop, slots, pair):
    """A take-over and a worker that asks do not wait in a circle, and the gap is kept."""
    undertaker, heir = pair
    number, _ = slots
    dead, other = shop.worker(), shop.worker()
    heir.run(holdings.renew, dead, [use_of(number)])
    heir.commit()
    shop.expire_lease(dead)

    undertaker.run(shop.take_over)
    heir.start(holdings.renew, other, [use_of(number)])
    heir.until_blocked()
    undertaker.commit()
    refused = heir.resume()[number]
    heir.commit()

    assert refused.units == 0
    ((free_in,),) = shop.rows(
        "SELECT extract(epoch FROM until - clock_timestamp()) FROM holdings WHERE units > 0"
    )
    assert float(free_in) == pytest.approx(GAP, abs=2.0)


@pytest.mark.parametrize("claims_first", [True, False])
def test_a_claim_beside_a_renewal(shop, slots, pair, claims_first):
    """Of a claim and a renewal that want the same slot at once, one has it."""
    claimer, renewer = pair
    number, _ = slots
    shop.seed(page("A"))
    one, other = shop.worker(), shop.worker()

    if claims_first:
        claims = claimer.run(lambda connection: limited(shop, connection, one))
        renewer.start(holdings.renew, other, [use_of(number)])
        renewer.until_blocked()
        claimer.commit()
        grant = renewer.resume()[number]
        renewer.commit()
    else:
        grant = renewer.run(holdings.renew, other, [use_of(number)])[number]
        claims = claimer.run(lambda connection: limited(shop, connection, one))
        claimer.commit()
        renewer.commit()

    assert (len(claims), grant.units) == ((1, 0) if claims_first else (0, 1))


def test_work_that_arrives_while_its_queue_is_being_taken(shop, pair):
    """New work of a slot neither waits for the claim that takes it, nor is it lost."""
    claimer, committer = pair
    shop.seed(page("A"))
    worker = shop.worker()

    assert len(claimer.run(lambda connection: limited(shop, connection, worker))) == 1
    committer.run(shop.operate, page("B"))
    committer.commit()
    claimer.commit()
    claimer.run(holdings.release_all, worker, [])
    claimer.commit()

    claims = claimer.run(lambda connection: limited(shop, connection, worker))
    claimer.commit()
    assert [one.item.id for one in claims] == ["B"]


def test_a_worker_that_stops_beside_one_that_renews(shop, slots, engine):
    """What a stopping worker tells of its limits is told in the order in which all lock them."""
    with races.actors(engine, 3) as (stopping, renewing, first):
        one, other = shop.worker(), shop.worker()
        uses = [use_of(number, Terms(concurrency=8)) for number in slots]
        last = [use_of(number, wants=0, last_ago=1.0) for number in reversed(slots)]
        _in_a_circle(
            first,
            [
                (renewing, holdings.renew, other, uses),
                (stopping, holdings.release_all, one, last),
            ],
            f"UPDATE limits SET latency = 1 WHERE id = {slots[0]}",
        )

    with engine.connect() as connection:
        assert held(connection) == {(number, other): 1 for number in slots}
    assert shop.rows("SELECT count(last_at) FROM limits") == [(2,)]


def test_two_renewals_at_once(shop, slots, engine):
    """Two that renew the same limits lock them in one order, however they name them."""
    with races.actors(engine, 3) as (one, other, first):
        both = [shop.worker(), shop.worker()]
        uses = [use_of(number, Terms(concurrency=8)) for number in slots]
        steps = [
            (one, holdings.renew, both[0], uses),
            (other, holdings.renew, both[1], uses[::-1]),
        ]
        _in_a_circle(first, steps, f"UPDATE limits SET latency = 1 WHERE id = {slots[0]}")

    with engine.connect() as connection:
        assert held(connection) == {(number, worker): 1 for number in slots for worker in both}


def test_feedback_beside_a_renewal(shop, slots, engine):
    """What was learned of several slots is told in the order in which all lock them."""
    with races.actors(engine, 3) as (saving, renewing, first):
        one, other = shop.worker(), shop.worker()
        uses = [use_of(number, Terms(concurrency=8)) for number in slots]
        answers = [
            SlotFeedback(slot=f"{name}.example", blocked_for=9.0, blocked_by="429") for name in "ba"
        ]
        _in_a_circle(
            first,
            [
                (renewing, holdings.renew, other, uses),
                (saving, holdings.save_feedback, one, answers),
            ],
            f"UPDATE limits SET latency = 1 WHERE id = {slots[0]}",
        )

    with engine.connect() as connection:
        assert held(connection) == {(number, other): 1 for number in slots}
    assert shop.rows("SELECT blocked_by FROM limits") == [("429",), ("429",)]


def test_a_start_beside_a_renewal(shop, engine):
    """A start that declares limits anew locks them in the order in which all do."""
    with engine.begin() as connection:
        numbers = [limit(connection, f"shop/{one}", kind="task") for one in "ba"]
    declared = [
        limits.Limit(kind="task", name=f"shop/{one}", gap=9.0, concurrency=None) for one in "ab"
    ]
    worker = shop.worker()
    with races.actors(engine, 3) as (starting, renewing, first):
        uses = [use_of(number, Terms(concurrency=8)) for number in numbers]
        steps = [
            (renewing, holdings.renew, worker, uses),
            (starting, declared_limits.register, {shop.task_id("parse"): declared}),
        ]
        _in_a_circle(first, steps, f"UPDATE limits SET latency = 1 WHERE id = {numbers[0]}")

    with engine.connect() as connection:
        assert held(connection) == {(number, worker): 1 for number in numbers}
    assert shop.rows("SELECT gap FROM limits WHERE kind = 'task'") == [(9.0,), (9.0,)]


def test_a_worker_that_stops_beside_a_commit(shop, engine):
    """Queues are freed in the order in which commits wake them."""
    shop.seed(page("A"), page("B", "b.example"))
    worker = shop.worker()
    with races.actors(engine, 3) as (stopping, committing, first):
        first.run(lambda connection: limited(shop, connection, worker))
        first.commit()
        shop.execute("UPDATE queues SET is_live = false")
        ((number, queue),) = shop.rows(
            "SELECT slot_id, id FROM queues WHERE holder IS NOT NULL ORDER BY id LIMIT 1"
        )
        # What was had first is now read last.
        shop.execute("DELETE FROM holdings WHERE limit_id = :limit", limit=number)
        shop.execute(
            "INSERT INTO holdings (limit_id, worker_id, units, is_exclusive) "
            "VALUES (:limit, :worker, 1, true)",
            limit=number,
            worker=worker,
        )
        steps = [
            (committing, shop.operate, page("C"), page("D", "b.example")),
            (stopping, holdings.release_all, worker, []),
        ]
        _in_a_circle(first, steps, f"UPDATE queues SET is_live = false WHERE id = {queue}")

    with engine.connect() as connection:
        assert held(connection) == {}
    assert shop.rows("SELECT holder, is_live FROM queues") == [(None, True), (None, True)]


def test_a_take_over_beside_a_commit(shop, engine):
    """The queues of the dead are freed after items are locked, as commits wake queues."""
    shop.seed(page("A"))
    dead = shop.worker()
    with races.actors(engine, 3) as (undertaker, committer, claimer):
        assert len(claimer.run(lambda connection: limited(shop, connection, dead))) == 1
        claimer.commit()
        assert claimer.run(lambda connection: limited(shop, connection, dead)) == []
        claimer.commit()
        shop.execute("UPDATE queues SET is_live = false")
        shop.expire_lease(dead)

        committer.pause_before(queues.HOLD_QUEUES)
        committer.start(shop.operate, UpdateData({"seen": 1}, id="A"), page("B"))
        committer.until_paused()
        undertaker.start(shop.take_over)
        undertaker.until_blocked()
        committer.resume()
        committer.commit()
        undertaker.resume()
        undertaker.commit()


def _in_a_circle(first, steps, locking):
    """Let steps queue up for a row that `first` has, one after the other, and all of them end."""
    first.run(lambda connection: connection.execute(sa.text(locking)))
    running = {}
    for actor, function, *given in steps:
        actor.run(engine.hot_path)
        running[actor.start(function, *given)] = actor
        actor.until_blocked()
    first.commit()
    for done in as_completed(running, timeout=races.PATIENCE):
        done.result()
        running[done].commit()
