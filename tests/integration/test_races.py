"""Known races, each stepped through its bad interleaving, with its cure and once without it.

The tests without a cure show that the others can fail.
"""

from __future__ import annotations

import builtins
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import timedelta
from typing import TYPE_CHECKING

import psutil
import pytest
import servers
import sqlalchemy as sa
from races import Crawl, actors, ended

from scrapy_itemgraph import task
from scrapy_itemgraph.changesets import batch_names
from scrapy_itemgraph.changesets.batch_names import MovedNamesError
from scrapy_itemgraph.graph import heartbeat
from scrapy_itemgraph.model.item_names import name_key
from scrapy_itemgraph.model.operations import (
    AddTag,
    CreateItem,
    DeleteAlias,
    DeleteItem,
    MergeItem,
    RemoveTag,
    RenameItem,
    UpdateData,
    UpdateMetadata,
)
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres.server_sharing import EmbeddedServer
from scrapy_itemgraph.store import queues, sql_conditions
from scrapy_itemgraph.store.registry import crawls, workers
from scrapy_itemgraph.store.registry import tasks as stored_tasks
from scrapy_itemgraph.store.worklist import claims as stored_claims
from scrapy_itemgraph.store.worklist import refresh, search

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.server

HERE = "http://here.example/"


class Books:
    @task(tags=["book"])
    def parse(self, response, item): ...


class BooksAndPrices(Books):
    @task(tags=["book"])
    def price(self, response, item): ...


class Jealous:
    @task(tags=["book"], exclusive="item")
    def first(self, response, item): ...

    @task(tags=["book"])
    def second(self, response, item): ...


@pytest.fixture
def crawl(engine) -> Crawl:
    """Make a crawl with one task."""
    return Crawl(engine, Books)


def book(name: str) -> CreateItem:
    """Return a seed that calls for work in the one queue."""
    return CreateItem(name, tags=["book"], data={"url": HERE + name})


def count_up(old: dict) -> dict:
    """Count how often an update was applied."""
    return {"count": old.get("count", 0) + 1}


def counted(crawl: Crawl, name: str) -> int:
    """Return how often `count_up` was applied to an item's data."""
    ((data,),) = crawl.rows("SELECT data FROM items WHERE name = :name", name=name)
    return data.get("count", 0)


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


# Fencing


@pytest.fixture
def zombie(crawl) -> tuple:
    """Make a claim whose worker's lease is over, and which nobody took over yet."""
    worker = crawl.worker()
    crawl.seed(book("A"))
    (claim,) = crawl.claimed(worker)
    crawl.expire_lease(worker)
    return worker, claim


def work_on(crawl: Crawl, claim, worker: int):
    """Return a commit of a claim, as a step."""
    changeset = ended(claim, UpdateData(count_up), CreateItem("found", tags=["book"]))
    return lambda connection: crawl.apply(connection, changeset, worker=worker)[0]


def check_done_once(crawl: Crawl) -> None:
    """Let a living worker do what is left of A, and check that A was done once in all."""
    worker = crawl.worker()
    for claim in crawl.claimed(worker):
        if claim.item.id == "A":
            with crawl.engine.begin() as connection:
                assert work_on(crawl, claim, worker)(connection).outcome is Outcome.OK
    assert counted(crawl, "A") == 1
    assert crawl.rows("SELECT count(*) FROM items WHERE name = 'found'") == [(1,)]
    assert ("A", "parse", True) not in crawl.outstanding()


def test_a_late_commit_before_the_take_over_stands(crawl, zombie):
    """A worker whose lease is over may commit as long as nobody took its claim over."""
    worker, claim = zombie

    with crawl.engine.begin() as connection:
        assert work_on(crawl, claim, worker)(connection).outcome is Outcome.OK

    assert crawl.taken_over() == 0
    check_done_once(crawl)


@pytest.mark.parametrize("claimed_anew", [False, True])
def test_a_late_commit_after_the_take_over_changes_nothing(crawl, zombie, claimed_anew):
    """A zombie commits nothing, whether its work waits again or is another's claim by now."""
    worker, claim = zombie
    assert crawl.taken_over() == 1
    other = crawl.worker()
    anew = crawl.claimed(other) if claimed_anew else []

    with crawl.engine.begin() as connection:
        assert work_on(crawl, claim, worker)(connection).outcome is None

    assert counted(crawl, "A") == 0
    assert crawl.outstanding() == [("A", "parse", claimed_anew)]
    with crawl.engine.begin() as connection:
        assert stored_claims.release(connection, anew, other) == len(anew)
    check_done_once(crawl)


@pytest.mark.parametrize("commits", [True, False])
def test_a_take_over_waits_for_a_commit_that_was_there_first(crawl, zombie, pair, commits):
    """A take-over frees only what the commit that it waited for did not end."""
    worker, claim = zombie
    committer, other = pair

    committer.run(work_on(crawl, claim, worker))
    taking = other.start(crawl.take_over)
    other.until_blocked()
    committer.commit() if commits else committer.rollback()

    assert taking.result() == (0 if commits else 1)
    other.commit()
    check_done_once(crawl)


@pytest.mark.parametrize("commits", [True, False])
def test_a_commit_waits_for_a_take_over_that_was_there_first(crawl, zombie, pair, commits):
    """A commit that waited for a take-over looks at the token again, on the row itself."""
    worker, claim = zombie
    committer, other = pair

    assert other.run(crawl.take_over) == 1
    committing = committer.start(work_on(crawl, claim, worker))
    committer.until_blocked()
    other.commit() if commits else other.rollback()

    assert committing.result().outcome is (None if commits else Outcome.OK)
    committer.commit()
    check_done_once(crawl)


def test_a_fence_in_another_table_would_let_a_zombie_commit(crawl, zombie, pair, monkeypatch):
    """Why the token stands on the row: after a wait only the locked row itself is read anew."""
    worker, claim = zombie
    committer, other = pair
    elsewhere = sa.text(f"""
        DELETE FROM work w
        USING unnest(CAST(:items AS bigint[]), CAST(:tasks AS int[]), CAST(:tokens AS uuid[]))
            AS ended(item_id, task_id, token)
        WHERE w.item_id = ended.item_id AND w.task_id = ended.task_id AND EXISTS (
            SELECT FROM workers o WHERE o.id = {worker} AND o.stopped_at IS NULL)
        RETURNING w.item_id, w.task_id
    """)
    monkeypatch.setattr("scrapy_itemgraph.changesets.apply.END_CLAIMS", elsewhere)

    other.run(crawl.take_over)
    committing = committer.start(work_on(crawl, claim, worker))
    committer.until_blocked()
    other.commit()

    assert committing.result().outcome is Outcome.OK  # though it was taken over


@pytest.mark.parametrize(
    "change",
    [
        lambda crawl, c, claim, worker: stored_claims.release(c, [claim], worker),
        lambda crawl, c, claim, worker: int(stored_claims.refile(c, claim, 1, worker)),
        lambda crawl, c, claim, worker: stored_claims.release_all(c, worker),
        lambda crawl, c, claim, worker: workers.heartbeat(c, worker, timedelta(hours=1)),
        *(
            lambda crawl, c, claim, worker, outcome=outcome: (
                crawl.apply(c, ended(claim, UpdateData(count_up), outcome=outcome), worker=worker)[
                    0
                ].outcome
                or 0
            )
            for outcome in (Outcome.OK, Outcome.FAILED, Outcome.REFUSED, Outcome.RETRY)
        ),
    ],
    ids=["release", "refile", "release all", "heartbeat", "ok", "failed", "refused", "retry"],
)
def test_nothing_that_is_said_of_a_lost_claim_changes_anything(crawl, zombie, change):
    """Release, refile, heartbeat, success, failure and retry name their claim, and look for it."""
    worker, claim = zombie
    crawl.taken_over()
    crawl.claimed(crawl.worker())
    everything = """
        SELECT w.*, (SELECT count(*) FROM attempts), (SELECT count(*) FROM failures),
            (SELECT count(*) FROM results), (SELECT max(stopped_at)::text FROM workers)
        FROM work w
    """
    before = crawl.rows(everything)

    with crawl.engine.begin() as connection:
        assert not change(crawl, connection, claim, worker)

    assert crawl.rows(everything) == before
    assert counted(crawl, "A") == 0


@pytest.mark.parametrize("cured", [True, False])
def test_a_worker_given_up_for_dead_claims_nothing(crawl, zombie, monkeypatch, cured):
    """Claims in the name of a buried worker would be taken over by nobody."""
    worker, _ = zombie
    crawl.taken_over()
    if not cured:
        monkeypatch.setattr(sql_conditions, "LIVES", sa.text("SELECT CAST(:worker AS int)"))

    claims = crawl.claimed(worker)

    assert len(claims) == (0 if cured else 1)
    crawl.expire_lease(worker)
    assert crawl.taken_over() == 0  # though claimed without the cure, for ever


def test_a_claim_waits_for_the_take_over_of_its_own_worker(crawl, zombie, pair):
    """Whoever is being buried at this moment claims nothing once that is committed."""
    worker, _ = zombie
    claimer, other = pair

    assert other.run(crawl.take_over) == 1
    claiming = claimer.start(crawl.claim, worker)
    claimer.until_blocked()
    other.commit()

    assert claiming.result() == []
    claimer.commit()
    assert crawl.outstanding() == [("A", "parse", False)]


def test_a_worker_that_claims_at_this_moment_is_not_buried(crawl, pair):
    """A take-over leaves a worker alone that is just claiming, although its lease is over."""
    worker = crawl.worker()
    crawl.seed(book("A"))
    crawl.expire_lease(worker)
    claimer, other = pair

    assert len(claimer.run(crawl.claim, worker)) == 1
    assert other.run(crawl.take_over) == 0
    other.commit()
    claimer.commit()

    assert crawl.taken_over() == 1
    assert crawl.outstanding() == [("A", "parse", False)]


def test_what_a_stopping_worker_still_claims_is_given_back(crawl, pair):
    """Giving everything back waits for a claim under way, and later ones find nothing to take."""
    worker = crawl.worker()
    crawl.seed(book("A"))
    claimer, stopper = pair

    def stop(connection):
        released = stored_claims.release_all(connection, worker)
        workers.stop(connection, worker, "finished")
        return released

    claimer.run(crawl.claim, worker)
    stopping = stopper.start(stop)
    stopper.until_blocked()
    claimer.commit()
    assert stopping.result() == 1
    late = claimer.start(crawl.claim, worker)
    claimer.until_blocked()
    stopper.commit()

    assert late.result() == []
    claimer.commit()
    assert crawl.outstanding() == [("A", "parse", False)]


# Names


@pytest.mark.parametrize("cured", [True, False])
def test_writers_of_the_same_names_do_not_deadlock(crawl, engine, monkeypatch, cured):
    """Names are taken in the order of their keys, whatever the order of the operations."""
    low, middle, high = sorted(["a", "b", "c"], key=name_key)
    if not cured:

        def unsorted(names, key=None):
            ordered = builtins.sorted(names, key=key)
            is_marked = any(isinstance(one, tuple) and "downwards" in one for one in ordered)
            return ordered[::-1] if is_marked else ordered

        monkeypatch.setattr(batch_names, "sorted", unsorted, raising=False)
    with actors(engine, 3) as (holder, upwards, downwards):
        holder.run(crawl.operate, CreateItem(middle))
        one = upwards.start(crawl.operate, *map(CreateItem, (low, middle, high)))
        upwards.until_blocked()
        other = downwards.start(
            crawl.operate, *map(CreateItem, (high, middle, low)), *_marker(cured)
        )
        downwards.until_blocked()
        holder.rollback()
        if cured:
            one.result()
            upwards.commit()
            assert [note.label for note in other.result().notes] == ["known"] * 3
            downwards.commit()
            return
        errors = []
        for actor, running in ((upwards, one), (downwards, other)):
            try:
                running.result()
                actor.commit()
            except sa.exc.OperationalError as error:
                errors.append(error.orig.sqlstate)
                actor.rollback()
        assert errors == ["40P01"]


def _marker(cured: bool) -> list:
    return [] if cured else [CreateItem("downwards")]


@pytest.mark.parametrize("commits", [True, False])
def test_two_writers_of_one_name_make_one_item(crawl, pair, commits):
    """The second to create a name waits for the first, and makes it only if that gave up."""
    first, second = pair

    first.run(crawl.operate, book("A"))
    creating = second.start(crawl.operate, book("A"))
    second.until_blocked()
    first.commit() if commits else first.rollback()

    (note,) = creating.result().notes
    assert note.label == ("known" if commits else "new")
    second.commit()
    assert crawl.rows("SELECT name FROM items") == [("A",)]
    assert crawl.outstanding() == [("A", "parse", False)]


@pytest.mark.parametrize("cured", [True, False])
def test_a_name_that_moves_while_its_owner_is_waited_for_is_looked_up_anew(
    crawl, pair, monkeypatch, cured
):
    """What a name means is checked again under the lock; if it moved, the batch begins anew."""
    merger, tagger = pair
    crawl.seed(CreateItem("A"), CreateItem("B"))
    if not cured:
        monkeypatch.setattr(batch_names, "check_still", lambda *_: None)

    merger.run(crawl.operate, MergeItem(into="B", id="A"))
    tagging = tagger.start(crawl.operate, AddTag("book", id="A"))
    tagger.until_blocked()
    merger.commit()

    if not cured:
        assert "there is no item 'A'" in tagging.result().error.message
        return
    with pytest.raises(MovedNamesError):
        tagging.result()
    tagger.rollback()
    assert tagger.run(crawl.operate, AddTag("book", id="A")).error is None
    tagger.commit()
    assert crawl.outstanding() == [("B", "parse", False)]


@pytest.mark.parametrize("commits", [True, False])
def test_a_rename_merges_into_an_item_that_is_created_at_this_moment(crawl, pair, commits):
    """Whether a name is taken is decided at the commit, after waiting for who may take it."""
    creator, renamer = pair
    crawl.seed(book("A"))

    creator.run(crawl.operate, book("B"))
    renaming = renamer.start(crawl.operate, RenameItem(to="B", id="A", if_taken="merge"))
    renamer.until_blocked()
    creator.commit() if commits else creator.rollback()

    (note,) = renaming.result().notes
    assert note.label == ("merged" if commits else "renamed")
    renamer.commit()
    assert crawl.rows("SELECT name FROM items") == [("B",)]
    assert crawl.rows("SELECT name FROM aliases ORDER BY name") == [("A",), ("B",)]
    assert crawl.outstanding() == [("B", "parse", False)]


def test_a_name_freed_and_taken_again_by_two_belongs_to_one(crawl, pair):
    """A name kept taken by a deletion, freed and taken by two at once, names one item."""
    first, second = pair
    crawl.seed(CreateItem("A"))
    crawl.seed(DeleteItem("A", forget=False))
    anew = (DeleteAlias("A"), CreateItem("A", tags=["book"]))

    first.run(crawl.operate, *anew)
    freeing = second.start(crawl.operate, *anew)
    second.until_blocked()
    first.commit()

    try:
        freeing.result()
        second.commit()
    except MovedNamesError:
        second.rollback()
    named = crawl.rows("SELECT i.name FROM items i JOIN aliases a ON a.item_id = i.id")
    assert named == [("A",)]
    assert crawl.rows("SELECT name FROM items") == [("A",)]


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
        monkeypatch.setattr(search, "FREE_ITEMS", UNLOCKED_ITEMS)

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
        monkeypatch.setattr(refresh, "WITHDRAW", refresh.WITHDRAW_AT_ONCE)

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

UNSHARED = sa.text("SELECT names_freed FROM crawls WHERE id = :crawl")


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


# Deaths


def test_work_that_kills_its_workers_runs_alone_and_then_fails(crawl):
    """After two deaths work is claimed only alone; three more while alone are its failure."""
    crawl.seed(book("A"))

    def die(**options) -> bool:
        worker = crawl.worker()
        claims = crawl.claimed(worker, **options)
        assert [one.is_alone for one in claims] in ([], [bool(options)])
        crawl.expire_lease(worker)
        return crawl.taken_over() == 1

    assert [die(), die()] == [True, True]
    assert not die()
    assert [die(alone=True), die(alone=True)] == [True, True]
    assert crawl.outstanding() == [("A", "parse", False)]
    assert die(alone=True)

    assert crawl.outstanding() == []
    ((error, handled),) = crawl.rows("SELECT error, handled_at FROM failures")
    assert (error["type"], handled) == ("worker died", None)
    assert crawl.rows("SELECT is_held FROM results") == [(True,)]
    assert crawl.attempts() == ["died"] * 5


def test_a_lease_that_ends_under_a_held_lock_is_a_stall(crawl):
    """Stalls are counted apart from deaths, and three of them alone are a failure of their own."""
    crawl.seed(book("A"))

    def lose(*, is_locked: bool, **options) -> None:
        worker = crawl.worker()
        assert len(crawl.claimed(worker, **options)) == 1
        with actors(crawl.engine, 1) as (holder,):
            if is_locked:
                holder.run(lambda c: c.exec_driver_sql(heartbeat.LOCK % worker))
            crawl.expire_lease(worker)
            assert crawl.taken_over() == 1

    lose(is_locked=True)
    lose(is_locked=False)
    lose(is_locked=True)
    assert crawl.rows("SELECT deaths, stalls, is_suspect FROM work") == [(1, 2, True)]
    for _ in range(2):
        lose(is_locked=True, alone=True)
        lose(is_locked=False, alone=True)
    assert crawl.rows("SELECT error FROM failures") == []
    lose(is_locked=True, alone=True)

    ((error,),) = crawl.rows("SELECT error FROM failures")
    assert error["type"] == "stalled"
    reasons = [reason for (reason,) in crawl.rows("SELECT reason FROM workers ORDER BY id")]
    assert reasons == crawl.attempts()
    assert reasons.count("stalled") == 5


# A restart of PostgreSQL


@pytest.fixture(scope="module")
def own_server() -> Iterator[EmbeddedServer]:
    """Run a server that may be stopped under everybody's feet."""
    with servers.open_directory() as directory:
        server = EmbeddedServer.start(directory)
        yield server
        server._cluster.ensure_running()
        server.close()


def stop_hard(server: EmbeddedServer) -> None:
    """Stop PostgreSQL as a crash would."""
    postmaster = psutil.Process(server._cluster._postmaster().pid)
    postmaster.kill()
    postmaster.wait()


@pytest.fixture
def own_crawl(own_server) -> Iterator[Crawl]:
    """Make a crawl on that server."""
    from scrapy_itemgraph.postgres import migrate

    engine = engines.sync_engine(own_server.url)
    with engine.begin() as connection:
        migrate.ensure(connection, auto=True)
        connection.exec_driver_sql("TRUNCATE crawls, items, work, attempts CASCADE")
    yield Crawl(engine, Books)
    engine.dispose()


def test_a_lock_lost_by_a_restart_of_the_server_is_no_death(own_server, own_crawl):
    """After a restart every lock is free, so the lease decides; claims and tokens stand."""
    crawl = own_crawl
    worker = crawl.worker()
    crawl.seed(book("A"), book("B"))
    (claim,) = crawl.claimed(worker, 1)
    (top,) = crawl.rows("SELECT max(seq) FROM work")
    with crawl.engine.begin() as connection:
        workers.mark_locked(connection, worker)

    stop_hard(own_server)
    own_server._cluster.ensure_running()
    crawl.engine.dispose()

    assert crawl.taken_over() == 0
    crawl.seed(book("C"))
    assert crawl.rows("SELECT max(seq) FROM work") > [top]
    (late,) = crawl.claimed(worker, 1)
    assert late.token != claim.token
    with crawl.engine.begin() as connection:
        assert work_on(crawl, claim, worker)(connection).outcome is Outcome.OK
    crawl.expire_lease(worker)
    assert crawl.taken_over() == 1
    assert crawl.attempts() == ["ok", "died"]


def test_a_free_lock_taken_since_the_server_started_is_a_death(crawl):
    """A lock that was held under this server and is free means that the process is gone."""
    worker = crawl.worker()
    crawl.seed(book("A"))
    crawl.claimed(worker)

    assert crawl.taken_over() == 0  # it has not said yet that it holds the lock
    with crawl.engine.begin() as connection:
        workers.mark_locked(connection, worker)

    assert crawl.taken_over() == 1
