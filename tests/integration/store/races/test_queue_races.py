"""Races for queues and work: parking, withdrawing, exclusive items, many at once."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed

import pytest
import sqlalchemy as sa
from support.raced_books import Books, book, count_up, work_on
from support.races import Crawl, actors, ended

from scrapy_itemgraph import task
from scrapy_itemgraph.model.operations import (
    CreateItem,
    DeleteItem,
    RemoveTag,
    UpdateMetadata,
)
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.store import queues
from scrapy_itemgraph.store.registry import crawls
from scrapy_itemgraph.store.registry import tasks as stored_tasks
from scrapy_itemgraph.store.worklist import claims as stored_claims
from scrapy_itemgraph.store.worklist import pick_work, refresh
from scrapy_itemgraph.store.worklist.admission import Admission

pytestmark = pytest.mark.server


class BooksAndPrices(Books):
    @task(tags=["book"])
    def price(self, response, item): ...


class Jealous:
    @task(tags=["book"], exclusive="item")
    def first(self, response, item): ...

    @task(tags=["book"])
    def second(self, response, item): ...


# Parking a queue as empty


UNHELD = sa.text("SELECT id FROM queues WHERE id = ANY (CAST(:queues AS int[]))")
PARK_BLINDLY = sa.text("""
    UPDATE queues SET is_live = false WHERE id = ANY (CAST(:queues AS int[]))
        AND CAST(:closed AS int[]) IS NOT NULL
""")


@pytest.mark.parametrize("cured", [True, False])
def test_work_inserted_while_its_queue_is_being_parked_is_found(crawl, pair, monkeypatch, cured):
    """Who parks a queue has it alone: an inserter that wrote already waits, and then wakes it."""
    parker, inserter = pair
    worker = crawl.worker()
    crawl.seed(book("gone"), CreateItem("elsewhere", tags=["book"]))
    crawl.claimed(worker)
    if not cured:
        monkeypatch.setattr(queues, "HOLD_QUEUES", UNHELD)

    parker.pause_before(queues.PARK)
    parker.start(crawl.claim, worker)
    parker.until_paused()
    inserter.start(crawl.operate, book("new"))
    if cured:
        inserter.until_blocked()
    else:
        inserter.start(lambda _: None).result()
    assert parker.resume() == []
    parker.commit()
    inserter.start(lambda _: None).result()
    inserter.commit()

    assert [one.item.id for one in crawl.claimed(worker)] == (["new"] if cured else [])
    assert ("new", "parse", cured) in crawl.outstanding()


@pytest.mark.parametrize("cured", [True, False])
def test_a_queue_that_got_work_since_it_looked_empty_is_not_parked(crawl, pair, monkeypatch, cured):
    """Before a queue is parked it is looked at again, in a statement of its own."""
    parker, inserter = pair
    worker = crawl.worker()
    crawl.seed(book("gone"))
    crawl.claimed(worker)
    if not cured:
        monkeypatch.setattr(queues, "PARK", PARK_BLINDLY)

    parker.pause_before(queues.LOCK_EMPTY)
    parker.start(crawl.claim, worker)
    parker.until_paused()
    inserter.run(crawl.operate, book("new"))
    inserter.commit()
    assert parker.resume() == []
    parker.commit()

    assert [one.item.id for one in crawl.claimed(worker)] == (["new"] if cured else [])


@pytest.mark.parametrize("cured", [True, False])
@pytest.mark.parametrize("enabled_first", [True, False])
def test_a_task_enabled_while_its_queue_is_being_parked_is_claimed(
    engine, pair, monkeypatch, enabled_first, cured
):
    """A task is taken for closed only while nobody is opening it."""
    crawl = Crawl(engine, BooksAndPrices)
    worker = crawl.worker()
    crawl.seed(book("A"))
    crawl.claimed(worker, tasks=crawl.only("price"))
    price, parse = crawl.only("price"), crawl.task_id("parse")
    crawl.execute("UPDATE tasks SET is_enabled = false WHERE id = :task", task=parse)
    parker, enabler = pair
    if not cured:
        monkeypatch.setattr(
            queues,
            "CLOSED_TASKS",
            sa.text("SELECT id FROM tasks WHERE crawl_id = :crawl AND NOT is_enabled"),
        )

    if enabled_first:
        enabler.run(stored_tasks.set_enabled, crawl.id, parse, enabled=True)
        assert parker.run(crawl.claim, worker, tasks=price) == []
        parker.commit()
    else:
        parker.pause_before(queues.PARK)
        parker.start(crawl.claim, worker, tasks=price)
        parker.until_paused()
        enabler.start(stored_tasks.set_enabled, crawl.id, parse, enabled=True)
        if cured:
            enabler.until_blocked()
        else:
            enabler.start(lambda _: None).result()
        parker.resume()
        parker.commit()
        enabler.start(lambda _: None).result()
    enabler.commit()

    found = [one.task for one in crawl.claimed(worker)]
    assert found == (["parse"] if cured else [])


# exclusive="item"


UNLOCKED_ITEMS = sa.text("SELECT unnest(CAST(:items AS bigint[]))")


@pytest.mark.parametrize("cured", [True, False])
@pytest.mark.parametrize(("one_task", "other_task"), [("first", "second"), ("second", "first")])
def test_an_item_that_a_task_wants_for_itself_is_claimed_once(  # noqa: PLR0917
    engine, pair, monkeypatch, one_task, other_task, cured
):
    """Of two claims of one item at the same moment one goes away empty, and later ones wait."""
    crawl = Crawl(engine, Jealous)
    crawl.seed(book("A"))
    one, other = pair
    workers = crawl.worker(), crawl.worker()
    if not cured:
        monkeypatch.setattr(pick_work, "FREE_ITEMS", UNLOCKED_ITEMS)

    (claim,) = one.run(crawl.claim, workers[0], tasks=crawl.only(one_task))
    got = other.run(crawl.claim, workers[1], tasks=crawl.only(other_task))
    other.commit()
    one.commit()

    assert len(got) == (0 if cured else 1)
    if cured:
        assert crawl.claimed(workers[1], tasks=crawl.only(other_task)) == []
        with engine.begin() as connection:
            crawl.apply(connection, ended(claim), worker=workers[0])
        assert [c.task for c in crawl.claimed(workers[1])] == [other_task]


def test_a_claim_that_met_another_on_its_items_is_tried_again_soon(engine, pair):
    """The other may decide for other work: nobody would tell that this one is still to be had."""
    crawl = Crawl(engine, Jealous)
    crawl.seed(book("A"))
    one, other = pair
    workers = crawl.worker(), crawl.worker()
    admission = Admission()

    one.run(crawl.claim, workers[0], tasks=crawl.only("first"))
    got = other.run(crawl.claim, workers[1], tasks=crawl.only("second"), admission=admission)
    one.rollback()

    assert got == []
    assert admission.again_in is not None


# Withdrawing work that is being claimed


@pytest.mark.parametrize(("commits", "cured"), [(True, True), (False, True), (False, False)])
def test_work_withdrawn_while_it_is_being_claimed_is_neither_left_nor_lost(
    crawl, pair, monkeypatch, commits, cured
):
    """Withdrawing waits for a claim under way: a claim that stands ends later, else it is gone."""
    claimer, tagger = pair
    worker = crawl.worker()
    crawl.seed(book("A"))
    if not cured:
        monkeypatch.setattr(refresh, "AWAIT", refresh.WITHDRAW)

    (claim,) = claimer.run(crawl.claim, worker)
    removing = tagger.start(crawl.operate, RemoveTag("book", id="A"))
    if cured:
        tagger.until_blocked()
        claimer.commit() if commits else claimer.rollback()
        removing.result()
        tagger.commit()
    else:
        removing.result()
        tagger.commit()
        claimer.rollback()

    if not cured:
        assert crawl.outstanding() == [("A", "parse", False)]  # though nothing calls for it
        return
    assert crawl.outstanding() == ([("A", "parse", True)] if commits else [])
    if commits:
        with crawl.engine.begin() as connection:
            (applied,) = crawl.apply(connection, ended(claim), worker=worker)
        assert applied.outcome is Outcome.OK
        assert crawl.outstanding() == []


def test_work_released_while_its_reason_goes_is_gone(crawl, pair):
    """A claim given back after its tag was removed does not come back as work."""
    releaser, tagger = pair
    worker = crawl.worker()
    crawl.seed(book("A"))
    claims = crawl.claimed(worker)

    tagger.run(crawl.operate, RemoveTag("book", id="A"))
    releasing = releaser.start(lambda c: stored_claims.release(c, claims, worker))
    releaser.until_blocked()
    tagger.commit()

    assert releasing.result() == 1
    releaser.commit()
    assert crawl.outstanding() == []


def test_a_deleted_item_takes_its_claim_along(crawl, pair):
    """An execution whose item is deleted while it commits finds that under the item's lock."""
    deleter, committer = pair
    worker = crawl.worker()
    crawl.seed(book("A"))
    (claim,) = crawl.claimed(worker)

    deleter.run(crawl.operate, DeleteItem("A"))
    committing = committer.start(work_on(crawl, claim, worker))
    committer.until_blocked()
    deleter.commit()

    assert committing.result().outcome is None
    committer.commit()
    assert crawl.rows("SELECT name FROM items") == []
    assert crawl.outstanding() == []


# What tasks mean, while commits work by it


UNSHARED = sa.text(
    "SELECT names_freed, run, dripfeed, tracks_depth, frontier, clock_timestamp() AS now"
    " FROM crawls WHERE id = :crawl"
)


@pytest.mark.parametrize("cured", [True, False])
def test_a_sweep_does_not_miss_what_was_committed_by_the_old_meaning(
    crawl, pair, monkeypatch, cured
):
    """A start that changes tasks waits for the commits that go by what they meant before."""
    committer, starter = pair
    if not cured:
        monkeypatch.setattr(crawls, "SHARE_CRAWL", UNSHARED)

    committer.run(crawl.operate, book("A"))
    registering = starter.start(crawl.declare, BooksAndPrices)
    if cured:
        starter.until_blocked()
        committer.commit()
        registering.result()
        starter.commit()
        crawl.sweep()
    else:
        registering.result()
        starter.commit()
        crawl.sweep()
        committer.commit()

    expected = [("A", "parse", False), ("A", "price", False)]
    assert crawl.outstanding() == expected[: 2 if cured else 1]


# Claims of many at once


class Shift:
    """Workers of a crawl that work at once until all is done; every claim is noted."""

    def __init__(self, crawl: Crawl) -> None:
        self.crawl = crawl
        self.claims: list = []
        self._is_over = threading.Event()

    def run(self) -> None:
        """Work with two workers, one whose workers all die, and one that buries them."""
        parts = (self._work, self._work, self._die, self._bury)
        with ThreadPoolExecutor(len(parts)) as pool:
            for one in as_completed([pool.submit(self._until_over, part) for part in parts]):
                self._is_over.set()
                one.result()

    def _until_over(self, part) -> None:
        worker = self.crawl.worker()
        while not self._is_over.is_set():
            worker = part(worker) or worker

    def _work(self, worker: int, **options) -> None:
        claims = self.crawl.claimed(worker, 7, **options)
        self.claims += [(c.item_id, c.token) for c in claims]
        changesets = [ended(c, UpdateMetadata(count_up)) for c in claims]
        with self.crawl.engine.begin() as connection:
            self.crawl.apply(connection, *changesets, worker=worker)

    def _die(self, worker: int) -> int:
        self.claims += [(c.item_id, c.token) for c in self.crawl.claimed(worker, 7)]
        self.crawl.expire_lease(worker)
        return self.crawl.worker()

    def _bury(self, worker: int) -> None:
        self.crawl.taken_over()
        self._work(worker, alone=True)
        if not self.crawl.outstanding():
            self._is_over.set()


@pytest.mark.parametrize("queues", [1, 40])
def test_everything_is_done_once_by_many_workers_of_whom_some_die(crawl, queues):
    """With concurrent claims, take-overs and dying workers each pair is completed exactly once."""
    total = 240
    urls = {f"i{n}": f"http://{n % queues}.example/" for n in range(total)}
    crawl.seed(*(CreateItem(name, tags=["book"], data={"url": urls[name]}) for name in urls))
    shift = Shift(crawl)

    shift.run()

    counts = crawl.rows("SELECT metadata->>'count', count(*) FROM results GROUP BY 1")
    assert counts == [("1", total)]
    assert max(Counter(shift.claims).values()) == 1


def test_claims_at_the_same_moment_share_nothing(crawl, engine):
    """Claims that are open at once take different rows, and together all of them."""
    crawl.seed(*(book(f"i{n}") for n in range(40)))

    with actors(engine, 5) as claimers:
        taken = [one.item_id for a in claimers for one in a.run(crawl.claim, crawl.worker(), 8)]
        for claimer in claimers:
            claimer.commit()

    assert len(taken) == len(set(taken)) == 40
