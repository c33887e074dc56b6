"""What a worker that was taken for dead can still do, and how deaths are seen."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import psutil
import pytest
import sqlalchemy as sa
from support import servers
from support.raced_books import Books, book, count_up, work_on
from support.races import Crawl, actors, ended

from scrapy_itemgraph.connections import locks
from scrapy_itemgraph.model.operations import (
    UpdateData,
)
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres.embedded_server import EmbeddedServer
from scrapy_itemgraph.store import sql_conditions
from scrapy_itemgraph.store.registry import processes, workers
from scrapy_itemgraph.store.worklist import claims as stored_claims

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.server


def counted(crawl: Crawl, name: str) -> int:
    """Return how often `count_up` was applied to an item's data."""
    ((data,),) = crawl.rows("SELECT data FROM items WHERE name = :name", name=name)
    return data.get("count", 0)


# Fencing


@pytest.fixture
def zombie(crawl) -> tuple:
    """Make a claim whose worker's lease is over, and which nobody took over yet."""
    worker = crawl.worker()
    crawl.seed(book("A"))
    (claim,) = crawl.claimed(worker)
    crawl.expire_lease(worker)
    return worker, claim


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
            SELECT FROM processes o WHERE o.id = {worker} AND o.stopped_at IS NULL)
        RETURNING ended.token
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
        lambda crawl, c, claim, worker: processes.renew(c, worker, timedelta(hours=1)),
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
            (SELECT count(*) FROM results), (SELECT max(stopped_at)::text FROM processes)
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
                holder.run(lambda c: c.exec_driver_sql(locks.LOCK % worker))
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
    reasons = [reason for (reason,) in crawl.rows("SELECT reason FROM processes ORDER BY id")]
    assert reasons == crawl.attempts()
    assert reasons.count("stalled") == 5


# A restart of PostgreSQL


@pytest.fixture(scope="module")
def own_server() -> Iterator[EmbeddedServer]:
    """Run a server that may be stopped under everybody's feet."""
    with servers.open_directory() as directory:
        server = EmbeddedServer.start(directory)
        yield server
        server.cluster.ensure_running()
        server.close()


def stop_hard(server: EmbeddedServer) -> None:
    """Stop PostgreSQL as a crash would."""
    postmaster = psutil.Process(server.cluster._postmaster().pid)
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
        processes.mark_locked(connection, worker)

    stop_hard(own_server)
    own_server.cluster.ensure_running()
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
        processes.mark_locked(connection, worker)

    assert crawl.taken_over() == 1
