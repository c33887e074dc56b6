"""The end of a crawl that people steer, and its awakening: beside who adds, neither is missed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support import steering
from support.races import HOUR, Crawl, ended

from scrapy_itemgraph import CreateItem, task
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.store.admin import limit_changes
from scrapy_itemgraph.store.registry import crawl_ends, crawl_queue, duties, runs, workers

if TYPE_CHECKING:
    from collections.abc import Iterator

    import sqlalchemy as sa

pytestmark = pytest.mark.server


class Books:
    @task(tags=["book"])
    def parse(self, response, item): ...

    @task(tags=["cover"])
    def cover(self, response, item): ...


class Steered(Crawl):
    """A crawl in the queue, with a run and a worker of it."""

    def __init__(self, engine: sa.Engine) -> None:
        with engine.begin() as connection:
            name, _ = crawl_queue.add(connection, steering.new_crawl(), by=steering.ANNA)
        super().__init__(engine, Books, name)
        with engine.begin() as connection:
            self.run = runs.join(connection, self.id).number
            self.own = workers.register(
                connection,
                self.id,
                spider="s",
                host="here",
                process_id=1,
                job=None,
                lease=HOUR,
            ).id
            workers.mark_started(connection, self.own)

    def finish(self, connection: sa.Connection) -> bool:
        """Find the end, in the caller's transaction."""
        engines.hot_path(connection)
        until = connection.execute(engines.NOW).scalar_one()
        return crawl_ends.finish(connection, self.id, self.run, worker_id=self.own, until=until)

    def finished(self) -> bool:
        """Find the end and commit."""
        with self.engine.begin() as connection:
            return self.finish(connection)

    @property
    def state(self) -> tuple[str, str | None]:
        """The crawl's state, and why."""
        ((state, reason),) = self.rows(
            "SELECT state, state_reason FROM crawls WHERE id = :id", id=self.id
        )
        return state, reason

    @property
    def history(self) -> list[str]:
        """What happened to it, in order."""
        return [what for (what,) in self.rows("SELECT what FROM crawl_events ORDER BY id")]


@pytest.fixture
def crawl(engine) -> Iterator[Steered]:
    """Yield a crawl that people steer."""
    return Steered(engine)


def book(name: str, tag: str = "book") -> CreateItem:
    """Return an item with work."""
    return CreateItem(name, tags=[tag], data={"url": f"http://a.example/{name}"})


def do_all(crawl: Steered) -> None:
    """Do all work that there is, until a claim finds nothing."""
    while taken := crawl.claimed(crawl.own):
        with crawl.engine.begin() as connection:
            crawl.apply(connection, *map(ended, taken), worker=crawl.own)


def test_a_crawl_ends_with_its_run_and_says_what_is_left(crawl):
    """MNB-3, MNB-8, MNB-6: an event, a notice; places that were its own until then are free."""
    crawl.seed(book("A"), book("B"), book("C", "cover"))
    crawl.execute("INSERT INTO runners (name, project, places) VALUES ('r', 'proj', 2)")
    crawl.execute(
        "INSERT INTO places (runner_id, number, locked_to, lock) SELECT r.id, n, :crawl, lock "
        "FROM runners r, (VALUES (1, 'until finished'), (2, 'indefinitely')) AS of(n, lock)",
        crawl=crawl.id,
    )
    crawl.execute("UPDATE tasks SET is_enabled = false WHERE name = 'cover'")
    first, *_ = crawl.claimed(crawl.own, 1)
    with crawl.engine.begin() as connection:
        crawl.apply(connection, ended(first, outcome=Outcome.FAILED), worker=crawl.own)
    assert crawl.finished()
    assert crawl.state == ("active", None)
    do_all(crawl)

    assert crawl.finished()

    reason = "left: 1 of tasks that are disabled, stopped or gone, 1 failure open"
    assert crawl.state == ("finished", reason)
    assert crawl.history == ["added", "finished", "unlocked"]
    assert crawl.rows("SELECT lock FROM places ORDER BY number") == [(None,), ("indefinitely",)]
    assert crawl.rows("SELECT what, body->>'reason' FROM notices") == [("finished", reason)]
    assert crawl.rows("SELECT is_finished FROM runs") == [(True,)]


def test_who_ends_a_crawl_looks_again_while_somebody_adds(crawl, pair):
    """A commit under way keeps the crawl open: its work is seen after it."""
    crawl.seed(book("A"))
    do_all(crawl)
    one, other = pair
    one.run(crawl.operate, book("B"))

    assert not other.run(crawl.finish)

    other.commit()
    one.commit()
    assert crawl.finished()
    assert crawl.state == ("active", None)


def test_who_adds_beside_the_end_awakens_the_crawl(crawl, pair):
    """It waits for the end to be committed, finds all queues parked, and brings the crawl back."""
    crawl.seed(book("A"))
    do_all(crawl)
    one, other = pair
    assert one.run(crawl.finish)
    answer = other.start(crawl.operate, book("B"))
    other.until_blocked()
    one.commit()
    assert answer.result().error is None
    other.commit()

    assert crawl.state == ("active", None)
    assert crawl.history == ["added", "finished", "awakened"]


@pytest.mark.parametrize("change", ["pause", "abort"])
def test_new_work_leaves_a_paused_or_aborted_crawl_as_it_is(crawl, change):
    """A person's wish stands, also where a worker finds the end at the same time."""
    crawl.seed(book("A"))
    do_all(crawl)
    with crawl.engine.begin() as connection:
        steering.change(connection, "s", change)
    assert crawl.finished()

    crawl.seed(book("B"))

    assert crawl.state[0] == {"pause": "paused", "abort": "aborted"}[change]


def test_what_comes_free_without_new_work_is_found_by_a_look(crawl):
    """A website that was unblocked, a task that was enabled: a look each minute finds the crawl."""
    crawl.seed(book("A"))
    with crawl.engine.begin() as connection:
        limit_changes.block(connection, "a.example", for_=HOUR * 24 * 400)
    assert crawl.finished()
    assert crawl.state == ("finished", "left: 1 of websites that are blocked")

    assert look(crawl) == 0
    with crawl.engine.begin() as connection:
        limit_changes.unblock(connection, "a.example")

    assert look(crawl) == 1
    assert crawl.state == ("active", None)
    assert look(crawl) == 0


@pytest.mark.parametrize(("keeps_fresh", "state"), [(False, "finished"), (True, "active")])
def test_results_that_fall_due_bring_back_a_crawl_that_keeps_fresh_alone(crawl, keeps_fresh, state):
    """Else a time to live would be a schedule: they wait for the next start."""
    crawl.seed(book("A"))
    do_all(crawl)
    assert crawl.finished()
    with crawl.engine.begin() as connection:
        workers.stop(connection, crawl.own, "finished")
    crawl.execute("UPDATE crawls SET keeps_fresh = :fresh", fresh=keeps_fresh)
    crawl.execute("UPDATE results SET due_at = now(), expires_at = now()")
    attend(crawl)
    gathered = crawl.state[0]
    crawl.execute("UPDATE runs SET ended_at = ended_at - interval '1 minute'")
    attend(crawl)

    assert (gathered, crawl.state[0]) == ("finished", state)
    assert len(crawl.outstanding()) == int(keeps_fresh)


def test_what_is_blocked_does_not_make_a_schedule_of_a_time_to_live(crawl):
    """A crawl that ended with a blocked website left is looked at, and its due results are none."""
    crawl.seed(book("A"))
    do_all(crawl)
    crawl.seed(book("B"))
    with crawl.engine.begin() as connection:
        limit_changes.block(connection, "a.example", for_=HOUR * 24 * 400)
    assert crawl.finished()
    crawl.execute(
        "UPDATE results SET due_at = now(), expires_at = now() WHERE completed_at IS NOT NULL"
    )

    assert look(crawl) == 0
    assert crawl.state[0] == "finished"


def attend(crawl: Steered) -> None:
    """Have a process do the duties of crawls that nobody runs."""
    for _ in range(3):
        with crawl.engine.begin() as connection:
            duties.attend(connection, duties.Round())


def look(crawl: Steered) -> int:
    """Look for crawls that have work all the same."""
    with crawl.engine.begin() as connection:
        found: Any = crawl_ends.awaken_missed(connection)
        return found


@pytest.mark.parametrize(("held", "goes_on"), [("pause", "resume"), ("abort", "revive")])
def test_a_crawl_that_was_held_as_it_ended_ends_when_it_goes_on(crawl, held, goes_on):
    """MNB-3: the process that is started then goes on with the run, and fetches nothing again."""
    crawl.seed(book("A"))
    do_all(crawl)
    with crawl.engine.begin() as connection:
        steering.change(connection, "s", held)
    assert crawl.finished()
    assert crawl.rows("SELECT is_finished FROM runs") == [(False,)]
    crawl.execute("UPDATE processes SET stopped_at = now() WHERE id = :own", own=crawl.own)
    with crawl.engine.begin() as connection:
        steering.change(connection, "s", goes_on)
        runs.settle(connection, crawl.id)
        assert not runs.settle(connection, crawl.id)
        assert runs.join(connection, crawl.id, for_queue=True).number == crawl.run

    assert crawl.finished()
    assert crawl.state == ("finished", None)
    assert crawl.rows("SELECT number, is_finished FROM runs") == [(crawl.run, True)]
