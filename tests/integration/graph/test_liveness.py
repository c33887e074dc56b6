"""How a worker's end is noticed, with real processes that are killed, stopped and forked."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa
from conftest import new_database
from support.bouncers import bouncer
from support.processes import Popen
from support.proxies import proxy
from support.races import PATIENCE, Crawl, actors, claimed, ended

from scrapy_itemgraph import task
from scrapy_itemgraph.connections import awaited_answers
from scrapy_itemgraph.exceptions import ConfigurationError, DatabaseError
from scrapy_itemgraph.graph.worker_graph import WorkerGraph
from scrapy_itemgraph.model.operations import CreateItem, UpdateData
from scrapy_itemgraph.model.tasks import discover
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres import migrate
from scrapy_itemgraph.settings import Settings
from scrapy_itemgraph.store import notify

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.server

HOUR = timedelta(hours=1)

# A worker that claims one piece of work and says so; then it does what its last argument says.
WORKER = """
import asyncio, os, sys, time
from datetime import timedelta

from scrapy_itemgraph.graph.worker_graph import WorkerGraph
from scrapy_itemgraph.settings import Settings
from scrapy_itemgraph.model.tasks import discover
from scrapy_itemgraph.model.work import ClaimBudget
from scrapy_itemgraph import task
from scrapy_itemgraph.postgres import sessions

class Books:
    @task(tags=["book"])
    def parse(self, response, item): ...

async def run(url, session_url, seconds, what):
    lease = timedelta(seconds=float(seconds))
    settings = Settings.of(database_url=url, session_url=session_url or None, lease=lease)
    graph = await WorkerGraph.open(settings, crawl="books", spider="spider", tasks=discover(Books))
    claims = (await graph.claims.claim(ClaimBudget(most=1))).claims
    child = 0
    if what != "wait":
        if what == "fork carelessly":
            sessions.not_inherited.clear()
        child = os.fork()
        if not child:
            time.sleep(600)
            os._exit(0)
    print(graph.worker_id, len(claims), child, flush=True)
    await asyncio.sleep(600)

asyncio.run(run(*sys.argv[1:]))
"""


class Books:
    @task(tags=["book"])
    def parse(self, response, item): ...


@pytest.fixture
def crawl(engine) -> Crawl:
    """Make a crawl with one piece of work."""
    crawl = Crawl(engine, Books)
    crawl.seed(CreateItem("A", tags=["book"]))
    return crawl


@contextmanager
def process(
    url: str, *, session_url: str = "", lease: timedelta = HOUR, then: str = "wait"
) -> Iterator[tuple]:
    """Run a worker that has claimed; yield (process, worker's number, its child)."""
    seconds = str(lease.total_seconds())
    command = [sys.executable, "-c", WORKER, url, session_url, seconds, then]
    running = Popen(command, stdout=subprocess.PIPE, text=True)
    child = 0
    try:
        worker, claims, child = map(int, running.stdout.readline().split())
        assert claims == 1
        yield running, worker, child
    finally:
        running.kill()
        running.wait()
        running.stdout.close()
        if child:
            os.kill(child, signal.SIGKILL)


def until(holds, shown=lambda: "") -> None:
    """Return when a condition holds; where it never does, say what there is instead."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, shown()
        time.sleep(0.005)


async def until_async(holds) -> None:
    """Return when a condition holds, while the loop goes on."""
    await asyncio.to_thread(until, holds)


def lock_holders(crawl: Crawl) -> int:
    """Count the worker locks that are held."""
    ((count,),) = crawl.rows(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted "
        "AND classid = 'processes'::regclass AND database = "
        "(SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    return count


def test_the_claims_of_a_killed_process_are_free_at_once(crawl, database):
    """The lock dies with its process, so nobody waits for a lease of an hour."""
    with process(database) as (running, _, _):
        assert crawl.taken_over() == 0
        running.kill()
        running.wait()
        until(lambda: lock_holders(crawl) == 0)

        assert crawl.taken_over() == 1

    assert [one.item.id for one in crawl.claimed(crawl.worker())] == ["A"]


def test_a_stopped_process_keeps_its_claims_until_its_lease_is_over(crawl, database):
    """A frozen process still holds its lock; once its lease is over that does not count."""
    with process(database) as (running, worker, _):
        running.send_signal(signal.SIGSTOP)
        assert crawl.taken_over() == 0
        assert lock_holders(crawl) == 1

        crawl.expire_lease(worker)

        assert crawl.taken_over() == 1
        assert lock_holders(crawl) == 1
    assert crawl.attempts() == ["stalled"]


def test_a_stopped_process_does_not_renew_its_lease(crawl, database):
    """The thread that beats is frozen with its process, so its claims are not held for ever."""
    over = "SELECT lease_until < clock_timestamp() FROM processes"
    with process(database, lease=timedelta(seconds=3)) as (running, _, _):
        running.send_signal(signal.SIGSTOP)
        until(
            lambda: crawl.rows(over) == [(True,)],
            lambda: (
                Path(f"/proc/{running.pid}/stat").read_text(),
                crawl.rows("SELECT CAST(p AS text), clock_timestamp() FROM processes p"),
                crawl.rows("SELECT CAST(a AS text) FROM pg_stat_activity a"),
            ),
        )

        assert crawl.taken_over() == 1
    assert crawl.attempts() == ["stalled"]


def test_nobody_is_buried_before_the_lease_is_over(crawl):
    """A worker whose lock tells nothing keeps its claims to the end of its lease, and no longer."""
    worker = crawl.worker(lease=timedelta(seconds=25))
    assert len(crawl.claimed(worker)) == 1

    early = crawl.taken_over()
    crawl.expire_lease(worker)

    assert (early, crawl.taken_over()) == (0, 1)


def test_the_beat_renews_the_lease(crawl, database):
    """A worker that goes on keeps its claims for longer than the lease that it began with."""
    ends = "SELECT lease_until FROM processes"

    async def run() -> None:
        async with opened(database, lease=timedelta(seconds=5)) as graph:
            assert len(await claimed(graph, 1)) == 1
            ((first,),) = crawl.rows(ends)
            await until_async(lambda: crawl.rows("SELECT clock_timestamp()") > [(first,)])
            await until_async(lambda: crawl.rows(ends) > [(first,)])
            assert await asyncio.to_thread(crawl.taken_over) == 0

    asyncio.run(run())

    assert crawl.attempts() == []


def test_a_process_without_file_descriptors_keeps_its_lease(crawl, database):
    """The heartbeat opens nothing that it has not had from the start."""
    ends = "SELECT lease_until FROM processes"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def run() -> None:
        async with opened(database, lease=timedelta(seconds=5)) as graph:
            await claimed(graph, 1)
            ((first,),) = crawl.rows(ends)
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))  # all are taken
                await asyncio.sleep(4)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            assert crawl.rows(ends) > [(first,)]
            assert graph.process.session._thread.is_alive()

    asyncio.run(run())


def test_a_beat_that_waits_for_its_row_hangs_no_thread_and_costs_no_claims(
    crawl, database, monkeypatch
):
    """A blocked loop may have the worker's row locked: the thread goes on, and comes first."""
    over = "SELECT lease_until < clock_timestamp() FROM processes"
    looks: list[bool] = []

    async def run() -> None:
        async with opened(database, lease=timedelta(seconds=3)) as graph:
            assert len(await claimed(graph, 1)) == 1
            lease = graph.process._lease
            turns = lease._loop_turns
            monkeypatch.setattr(
                lease, "_loop_turns", lambda session: looks.append(True) or turns(session)
            )
            with actors(crawl.engine, 1) as (holder,):
                holder.run(lambda c: c.exec_driver_sql("SELECT FROM processes FOR SHARE"))
                await until_async(lambda: crawl.rows(over) == [(True,)])
                looks.clear()
                await until_async(lambda: len(looks) > 2)
                assert await asyncio.to_thread(crawl.taken_over) == 0
                await asyncio.to_thread(holder.commit)
                await until_async(lambda: crawl.rows(over) == [(False,)])

    asyncio.run(run())

    assert crawl.attempts() == []


def test_what_a_stopped_process_has_locked_is_free_again(crawl, database):
    """A process that stops within a claim has its row locked: the server ends that transaction."""
    over = "SELECT lease_until < clock_timestamp() FROM processes"

    async def run() -> None:
        async with (
            opened(database, lease=timedelta(seconds=4)) as graph,
            graph.connections.transactions.engine.begin() as blocked,
        ):
            await blocked.run_sync(
                sa.Connection.execute, sa.text("SELECT FROM processes FOR SHARE")
            )
            pid = await blocked.run_sync(sa.Connection.scalar, sa.text("SELECT pg_backend_pid()"))
            ended = "SELECT count(*) FROM pg_stat_activity WHERE pid = :pid"
            await until_async(lambda: crawl.rows(ended, pid=pid) == [(0,)])
            assert crawl.rows(over) == [(False,)]
            await blocked.run_sync(sa.Connection.invalidate)
            await blocked.run_sync(sa.Connection.rollback)

    asyncio.run(run())


def test_a_forked_child_does_not_keep_the_lock(crawl, database):
    """A child that was forked without exec has no part in the lock's connection."""
    with process(database, then="fork") as (running, _, child):
        running.kill()
        running.wait()
        os.kill(child, 0)
        until(lambda: lock_holders(crawl) == 0)

        assert crawl.taken_over() == 1
        os.kill(child, 0)


def test_a_forked_child_could_keep_the_lock(crawl, database):
    """Why the child lets go of the connection: while it holds it, its parent seems alive."""
    with process(database, then="fork carelessly") as (running, _, _):
        running.kill()
        running.wait()

        assert crawl.taken_over() == 0
        assert lock_holders(crawl) == 1


@asynccontextmanager
async def opened(url: str, lease: timedelta = HOUR):
    """Open a worker of the crawl in this process."""
    settings = Settings.of(database_url=url, lease=lease)
    graph = await WorkerGraph.open(settings, crawl="books", spider="spider", tasks=discover(Books))
    try:
        yield graph
    finally:
        await graph.close("finished")


def test_a_session_whose_answers_are_lost_is_given_up(crawl, engine, monkeypatch):
    """A worker whose connections nobody passes on any more takes its lock on another, and lives on.

    TCP's keepalives are answered all the time, as by a proxy, so that they notice nothing.
    """
    monkeypatch.setattr(awaited_answers, "LOOK_AFTER", 0.5)
    monkeypatch.setattr(awaited_answers, "LOOK_EVERY", 0.2)

    async def run() -> list[str]:
        with proxy(engine) as (network, url):
            async with opened(url, timedelta(seconds=2)) as graph:
                network.forget()
                async with asyncio.timeout(PATIENCE):
                    while graph.process.lives:  # noqa: ASYNC110 - nobody tells
                        await asyncio.sleep(0.05)
                    while not graph.process.lives:  # noqa: ASYNC110 - nobody tells
                        await asyncio.sleep(0.05)
                return [claim.item.id for claim in await claimed(graph, 1)]

    assert len(asyncio.run(run())) == 1


def test_news_of_the_crawl_ends_a_wait(crawl, database):
    """Work put into a parked queue wakes a waiting worker; news of another crawl does not."""
    order: list[str] = []

    async def run() -> None:
        async with opened(database) as graph:
            await graph.news.wait()  # there may have been news before it listened
            claims = await claimed(graph, 1)
            assert await claimed(graph, 1) == []  # parks the queue
            waiting = asyncio.ensure_future(graph.news.wait())
            waiting.add_done_callback(lambda _: order.append("woken"))
            await asyncio.to_thread(tell, crawl.id + 1)
            assert not graph.news._of_crawl.is_there
            order.append("seeded")
            await asyncio.to_thread(crawl.seed, CreateItem("B", tags=["book"]))
            await asyncio.wait_for(waiting, PATIENCE)
            order.append("claimed")
            assert [one.item.id for one in await claimed(graph, 1)] == ["B"]
            await graph.claims.release(claims)

    def tell(number: int) -> None:
        with crawl.engine.begin() as connection:
            connection.execute(notify.NOTIFY, {"crawl": str(number)})

    asyncio.run(run())

    assert order == ["seeded", "woken", "claimed"]


def test_who_could_not_listen_for_a_while_looks_again(crawl, database, monkeypatch):
    """What was said while the connection that listens was cut is not known, so all is looked at."""
    monkeypatch.setattr("scrapy_itemgraph.connections.session._LONGEST_PAUSE", 0.1)
    cut = "SELECT pg_terminate_backend(:pid, 10000)"

    async def run() -> None:
        async with opened(database) as graph:
            await graph.news.wait()
            assert await graph.news.wait_for_own(3600)
            ear = graph.process.session._driver.info.backend_pid
            await asyncio.to_thread(crawl.rows, cut, pid=ear)
            await graph.news.wait()
            assert await graph.news.wait_for_own(3600)
            assert graph.process.session._driver.info.backend_pid != ear

    asyncio.run(asyncio.wait_for(run(), PATIENCE))


def test_of_many_workers_each_is_woken_now_and_then_only(crawl, database, monkeypatch):
    """Else each piece of work that comes alone would have all of them claim it."""
    chances = [0.5, 0.2, 0.1]  # to be woken is below an eighth

    async def run() -> None:
        async with opened(database) as graph:
            await graph.news.wait()  # as it begins to listen
            graph.upkeep.workers = 64
            monkeypatch.setattr("random.random", lambda: chances.pop(0))
            waiting = asyncio.ensure_future(graph.news.wait())
            for left in (2, 1):
                graph.news._of_crawl.tell()
                await until_async(lambda left=left: len(chances) == left)
                assert not waiting.done()
            graph.news._of_crawl.tell()
            await waiting

    asyncio.run(asyncio.wait_for(run(), PATIENCE))
    assert chances == []


def test_a_wait_without_news_ends_by_itself(crawl, database):
    """Waiting polls, should a notification be lost."""

    async def run() -> None:
        async with opened(database) as graph:
            assert await graph.news.wait_for_own(3600)  # as it begins to listen
            assert not await graph.news.wait_for_own(0.001)

    asyncio.run(asyncio.wait_for(run(), PATIENCE))


def test_a_worker_given_up_for_dead_goes_on_as_a_new_one(crawl, database):
    """It locks its new number, its old claim commits nothing, and what it claims anew counts."""

    async def run() -> None:
        async with opened(database, lease=timedelta(seconds=0.3)) as graph:
            (old,) = await claimed(graph, 1)
            before = graph.worker_id
            await asyncio.to_thread(bury, before)
            await until_async(lambda: graph.worker_id != before and locked(graph.worker_id))
            (applied,) = (
                await graph.commits.commit([ended(old, UpdateData({"by": "old"}))])
            ).applied
            assert applied.outcome is None
            (new,) = await claimed(graph, 1)
            (applied,) = (
                await graph.commits.commit([ended(new, UpdateData({"by": "new"}))])
            ).applied
            assert applied.outcome is Outcome.OK

    def bury(worker: int) -> None:
        def is_buried() -> bool:
            crawl.expire_lease(worker)
            return crawl.taken_over() == 1

        until(is_buried)

    def locked(worker: int) -> bool:
        return (
            crawl.rows(
                "SELECT locked_at IS NOT NULL FROM processes WHERE id = :worker", worker=worker
            )
            == [(True,)]
            and lock_holders(crawl) == 1
        )

    asyncio.run(run())

    assert crawl.rows("SELECT data->>'by' FROM items") == [("new",)]
    assert crawl.attempts() == ["stalled", "ok"]  # its lock was held


@pytest.mark.parametrize("when", ["before", "while it waits", "after its own"])
def test_a_worker_that_is_registered_twice_goes_on_as_one(crawl, database, when):
    """Recovery may register it while its heartbeat does: it claims as whose lease is renewed."""

    async def run() -> None:
        async with opened(database, lease=timedelta(seconds=0.6)) as graph:
            lease, transactions = graph.process._lease, graph.connections.transactions
            call, replace = transactions.call, lease._replace
            is_done = False

            async def recover() -> None:
                nonlocal is_done
                if not is_done:
                    is_done = True
                    graph.process.take(await call(graph.recovery.register_anew))

            async def beside(function, *args, **kwargs):
                is_own = getattr(function, "__name__", "") == "register"
                if is_own and when == "while it waits":
                    await recover()
                answer = await call(function, *args, **kwargs)
                if is_own and when == "after its own":
                    await recover()
                return answer

            async def replaced(given_up: int) -> None:
                transactions.call = beside
                if when == "before":
                    await recover()
                    await until_async(lambda: lease._number == graph.worker_id)
                await replace(given_up)

            lease._replace = replaced
            before = graph.worker_id
            crawl.rows(
                "UPDATE processes SET stopped_at = now() WHERE id = :worker RETURNING id",
                worker=before,
            )
            await until_async(lambda: is_done and graph.process.lives)
            await asyncio.sleep(2.0)  # three leases: who is not renewed is dead

            assert lease._number == graph.worker_id != before
            assert graph.process.lives
            assert len(await claimed(graph, 1)) == 1

    asyncio.run(asyncio.wait_for(run(), PATIENCE))


def test_a_worker_that_cannot_be_registered_anew_tries_again(crawl, database):
    """What its registration failed of may pass; until then it does not count as living."""
    failed: list[int] = []

    async def run() -> None:
        async with opened(database, lease=timedelta(seconds=0.6)) as graph:
            lease = graph.process._lease
            replace, before = lease._replace, graph.worker_id

            async def fails_twice(given_up: int) -> None:
                if len(failed) < 2:
                    failed.append(given_up)
                    raise DatabaseError("not now")
                await replace(given_up)

            lease._replace = fails_twice
            crawl.rows(
                "UPDATE processes SET stopped_at = now() WHERE id = :worker RETURNING id",
                worker=before,
            )
            await until_async(lambda: graph.worker_id != before and graph.process.lives)
            assert failed == [before, before]

    asyncio.run(asyncio.wait_for(run(), PATIENCE))


def test_a_lost_lock_is_taken_again(crawl, database):
    """A worker whose lock's connection broke takes the lock again and stays who it is."""

    async def run() -> None:
        async with opened(database, lease=timedelta(seconds=0.3)) as graph:
            before = graph.process.session._driver.info.backend_pid
            await asyncio.to_thread(
                crawl.rows, "SELECT pg_terminate_backend(:pid, 10000)", pid=before
            )
            await until_async(lambda: lock_holders(crawl) == 1 and graph.process.lives)
            assert graph.process.session._driver.info.backend_pid != before
            assert len(await claimed(graph, 1)) == 1

    asyncio.run(run())


def test_nothing_counts_as_held_while_a_cut_lock_is_not_taken_again(crawl, database, monkeypatch):
    """A worker notices at once that its lock is gone, and starts nothing before it is back."""

    async def run() -> None:
        async with opened(database, lease=timedelta(hours=1)) as graph:
            may_go_on = threading.Event()
            lease = graph.process._lease
            lock = lease._take_lock

            def locked_later(session) -> None:
                assert may_go_on.wait(PATIENCE)
                lock(session)

            monkeypatch.setattr(lease, "_take_lock", locked_later)
            assert graph.process.lives
            pid = graph.process.session._driver.info.backend_pid
            await asyncio.to_thread(crawl.rows, "SELECT pg_terminate_backend(:pid, 10000)", pid=pid)
            await until_async(lambda: not graph.process.lives)
            may_go_on.set()
            await until_async(lambda: graph.process.lives)
            assert await asyncio.to_thread(lock_holders, crawl) == 1

    asyncio.run(asyncio.wait_for(run(), PATIENCE))


def test_a_lock_that_the_server_still_holds_for_a_lost_connection_stops_no_heartbeat(
    crawl, database, monkeypatch
):
    """With the old connection half open, the worker locks beside it and its lease goes on."""

    async def run() -> None:
        async with opened(database, lease=timedelta(seconds=0.3)) as graph:
            half_open = graph.process.session._driver
            beats = []
            lease = graph.process._lease
            monkeypatch.setattr(lease, "_renew", _noting(lease._renew, beats))
            cut = os.dup(half_open.fileno())  # the server's end stays open
            nowhere, other = socket.socketpair()
            other.close()  # what the client sees of a cut network
            os.dup2(nowhere.detach(), half_open.fileno())
            await until_async(lambda: len(beats) >= 3)
            assert await asyncio.to_thread(lock_holders, crawl) == 2
            assert await asyncio.to_thread(crawl.taken_over) == 0
            os.close(cut)

    asyncio.run(asyncio.wait_for(run(), PATIENCE))


def _noting(beat, beats: list):
    def noting(session, *, locked: bool) -> None:
        beats.append(locked)
        beat(session, locked=locked)

    return noting


def test_closing_gives_everything_back(crawl, database):
    """A worker that ends cleanly leaves no claim, no lock and no living worker behind."""

    async def run() -> None:
        async with opened(database) as graph:
            await claimed(graph, 1)

    asyncio.run(run())

    assert crawl.outstanding() == [("A", "parse", False)]
    assert crawl.rows("SELECT reason FROM processes") == [("finished",)]
    until(lambda: lock_holders(crawl) == 0)  # the server may notice the end of a session later


def test_behind_a_transaction_pooler_the_lock_is_held_by_a_session_of_its_own(crawl, database):
    """With ITEMGRAPH_SESSION_URL the lock lives as long as its process, whatever a pooler does."""
    with (
        bouncer(crawl.engine, "transaction") as url,
        process(url, session_url=database) as (running, _, _),
    ):
        assert lock_holders(crawl) == 1
        assert crawl.taken_over() == 0
        running.kill()
        running.wait()
        until(lambda: lock_holders(crawl) == 0)

        assert crawl.taken_over() == 1


def test_behind_a_transaction_pooler_the_lease_alone_tells_that_a_worker_lives(crawl):
    """Nothing is locked there: a killed worker's claims are free when its lease is over."""
    over = "SELECT lease_until < clock_timestamp() FROM processes"
    lease = timedelta(seconds=3)
    with bouncer(crawl.engine, "transaction") as url, process(url, lease=lease) as (running, _, _):
        assert lock_holders(crawl) == 0
        ((began,),) = crawl.rows("SELECT lease_until FROM processes")
        until(lambda: crawl.rows("SELECT lease_until FROM processes") != [(began,)])
        assert crawl.taken_over() == 0
        running.kill()
        running.wait()
        assert crawl.taken_over() == 0
        until(lambda: crawl.rows(over) == [(True,)])

        assert crawl.taken_over() == 1


def test_behind_a_transaction_pooler_a_busy_connection_costs_no_lease(crawl):
    """While the one connection is taken, the thread renews the lease by one of its own."""
    ends = "SELECT lease_until FROM processes"

    async def run(url: str) -> tuple[datetime, datetime]:
        async with opened(url, lease=timedelta(seconds=9)) as graph:
            await graph.connections.transactions._room.acquire()
            ((first,),) = crawl.rows(ends)
            await until_async(lambda: crawl.rows(ends) != [(first,)])
            ((later,),) = crawl.rows(ends)
            graph.connections.transactions._room.release()
            return first, later

    with bouncer(crawl.engine, "transaction") as url:
        first, later = asyncio.run(run(url))
    assert later > first


def test_a_session_of_another_database_is_refused(crawl, database, server_url):
    """A lock that the other workers cannot see would tell them nothing."""

    async def run(url: str) -> None:
        settings = Settings.of(database_url=database, session_url=url)
        await WorkerGraph.open(settings, crawl="books", spider="s", tasks=discover(Books))

    with new_database(server_url) as other:
        engine = engines.sync_engine(other)
        with engine.begin() as connection:
            migrate.ensure(connection, auto=True)
        engine.dispose()
        with pytest.raises(ConfigurationError, match="ITEMGRAPH_SESSION_URL leads to another"):
            asyncio.run(run(other))


def test_the_lock_holds_no_snapshot(crawl, database):
    """The session that holds the lock is in no transaction, so it does not hinder vacuum."""

    async def run() -> None:
        async with opened(database) as graph:
            pid = graph.process.session._driver.info.backend_pid
            held = await asyncio.to_thread(
                crawl.rows,
                "SELECT state, backend_xmin, backend_xid FROM pg_stat_activity WHERE pid = :pid",
                pid=pid,
            )
            assert held == [("idle", None, None)]

    asyncio.run(run())
