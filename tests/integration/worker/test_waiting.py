"""What waits for the database in a crawl: who wakes it, and what it is told from."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import pytest
import sqlalchemy as sa
from support.proxies import proxy

from scrapy_itemgraph.connections import awaited_answers, transactions
from scrapy_itemgraph.connections.transactions import Transactions
from scrapy_itemgraph.exceptions import DatabaseUnavailableError
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres import event_loop

pytestmark = pytest.mark.server

LONG = 600.0
PROCESS = sa.text("SELECT pg_backend_pid()")


def run(database: str, scenario, patience: float = LONG):
    """Run a scenario with transactions on a database; it has a minute."""

    async def within():
        one = Transactions(engines.async_engine(database), timedelta(seconds=patience))
        try:
            return await asyncio.wait_for(scenario(one), 60)
        finally:
            await one.close()

    return asyncio.run(within())


def test_who_sleeps_in_an_outage_is_woken_when_another_gets_an_answer(database, monkeypatch):
    """A commit whose pause would last ten minutes goes on with the first answer of any other."""
    monkeypatch.setattr(transactions, "_FIRST_PAUSE", LONG)
    monkeypatch.setattr(transactions, "_LONGEST_PAUSE", LONG)
    tries = []

    def lost_once(connection):
        tries.append(connection)
        if len(tries) == 1:
            connection.execute(sa.text("SELECT pg_terminate_backend(pg_backend_pid())"))
        return "done"

    async def scenario(one):
        sleeping = asyncio.ensure_future(one.patiently(lost_once))
        done, _ = await asyncio.wait([sleeping], timeout=1)
        assert not done
        assert len(tries) == 1
        await one.patiently(lambda connection: connection.scalar(PROCESS))
        return await sleeping

    assert run(database, scenario) == "done"


def test_what_waits_for_a_connection_waits_for_the_patience(database, engine, monkeypatch):
    """More calls than connections wait for a lock; none of them fails, and all are done."""
    monkeypatch.setattr(sa.pool.QueuePool.__init__, "__defaults__", (5, 10, 0.1, False))

    async def scenario(one):
        def read(connection):
            return connection.scalar(sa.text("SELECT count(*) FROM items"))

        with engine.connect() as holder, holder.begin():
            holder.execute(sa.text("LOCK TABLE items"))
            calls = [asyncio.ensure_future(one.patiently(read)) for _ in range(12)]
            done, _ = await asyncio.wait(calls, timeout=1)
            assert not done
        return await asyncio.gather(*calls)

    assert run(database, scenario) == [0] * 12


def test_after_the_patience_the_lock_is_named_and_nothing_is_left(database, engine, monkeypatch):
    """Who gives up is told who holds what; neither connection nor place in the queue is lost."""
    monkeypatch.setattr(awaited_answers, "LOOK_EVERY", 0.2)

    async def scenario(one):
        def read(connection):
            return connection.scalar(sa.text("SELECT count(*) FROM items"))

        with engine.connect() as holder, holder.begin():
            process = holder.scalar(PROCESS)
            holder.execute(sa.text("LOCK TABLE items"))
            with pytest.raises(DatabaseUnavailableError, match=f"lock on items .* {process} holds"):
                await one.patiently(read)
        return await asyncio.gather(*(one.patiently(read) for _ in range(6)))

    assert run(database, scenario, patience=1.0) == [0] * 6


@pytest.mark.parametrize("is_ending", [False, True])
def test_a_lock_after_a_first_answer_is_waited_for_no_longer_than_the_patience(
    database, engine, monkeypatch, is_ending
):
    """Who had an answer is looked after too, also where nobody else waits for anything."""
    monkeypatch.setattr(awaited_answers, "LOOK_EVERY", 0.2)
    monkeypatch.setattr(transactions, "_PATIENCE_AT_THE_END", 1.0)

    def read(connection):
        connection.scalar(PROCESS)
        return connection.scalar(sa.text("SELECT count(*) FROM items"))

    async def scenario(one):
        with engine.connect() as holder, holder.begin():
            holder.execute(sa.text("LOCK TABLE items"))
            reading = asyncio.ensure_future(one.patiently(read))
            if is_ending:  # there is less time by then
                await asyncio.sleep(0.3)
                one.hurry()
            with pytest.raises(DatabaseUnavailableError, match="lock on items"):
                await reading

    run(database, scenario, patience=LONG if is_ending else 1.0)


def test_a_connection_that_falls_silent_after_a_first_answer_is_replaced(engine, monkeypatch):
    """The statement whose answer was lost is sent again, by another connection."""
    monkeypatch.setattr(awaited_answers, "LOOK_AFTER", 0.5)
    monkeypatch.setattr(awaited_answers, "LOOK_EVERY", 0.2)
    seen = []

    with proxy(engine) as (network, url):

        def twice(connection):
            seen.append(connection.scalar(PROCESS))
            if len(seen) == 1:
                network.forget()
            return connection.scalar(PROCESS)

        assert run(url, lambda one: one.patiently(twice)) == seen[1]

    assert len(set(seen)) == 2


def test_what_the_server_works_on_is_not_given_up(database, monkeypatch):
    """A statement that takes longer than the patience is waited for while the server is at it."""
    monkeypatch.setattr(awaited_answers, "LOOK_EVERY", 0.1)
    slow = sa.text("SELECT count(*) FROM generate_series(1, 8000000) n")

    async def scenario(one):
        return await one.patiently(lambda connection: connection.scalar(slow))

    assert run(database, scenario, patience=0.4) == 8_000_000


def test_a_client_at_work_between_statements_has_not_lost_its_answers(database, monkeypatch):
    """Who lets the loop turn waits for nobody, however long its work lasts, answers unread."""
    monkeypatch.setattr(awaited_answers, "LOOK_EVERY", 0.1)
    begun = []

    def work(connection):
        begun.append(time.monotonic())
        answer = connection.execute(sa.text("SELECT 1"))
        while time.monotonic() - begun[0] < 4:
            time.sleep(0.05)
            event_loop.yield_to_loop(connection)
        return answer.scalar()

    assert run(database, lambda one: one.call(work, hot=True), patience=1.0) == 1
    assert len(begun) == 1


def test_a_connection_that_fell_silent_while_nobody_used_it_is_replaced(
    engine, monkeypatch, caplog
):
    """What rests in the pool is asked first whether it lives; the log says that it does not."""
    monkeypatch.setattr(awaited_answers, "LOOK_AFTER", 0.5)
    monkeypatch.setattr(awaited_answers, "LOOK_EVERY", 0.2)

    with proxy(engine) as (network, url):

        async def scenario(one):
            first = await one.patiently(lambda connection: connection.scalar(PROCESS))
            network.forget()
            return first, await one.patiently(lambda connection: connection.scalar(PROCESS))

        first, second = run(url, scenario)

    assert first != second
    assert caplog.text.count("was lost on the way to or from the database") == 1


def test_a_long_transaction_of_short_statements_is_not_given_up(database):
    """Each answer counts: a huge commit in many slices may take longer than the patience."""
    times = []

    def slices(connection):
        times.append(time.monotonic())
        while time.monotonic() - times[0] < 6:
            time.sleep(0.05)  # what a commit does between its statements
            connection.execute(sa.text("SELECT pg_sleep(0.005)"))
        return len(times)

    assert run(database, lambda one: one.patiently(slices), patience=1.5) == 1


@pytest.mark.parametrize(("seconds", "connections"), [(0.0, 2), (0.02, 3)])
def test_a_database_far_away_gets_one_more_connection(database, seconds, connections):
    """Where the quickest of the first transactions took 20 ms, three run at once, else two."""
    running, most = set(), []

    def first(connection):
        connection.execute(sa.text("SELECT pg_sleep(:seconds)"), {"seconds": seconds})

    def later(connection):
        running.add(connection)
        most.append(len(running))
        connection.execute(sa.text("SELECT pg_sleep(0.1)"))
        running.discard(connection)

    async def scenario(_):
        pool = engines.async_engine(database, pool_size=engines.POOL_SIZE + 1)
        one = Transactions(pool, timedelta(seconds=LONG), more_when_far=1)
        for _ in range(10):
            await one.call(first)
        await asyncio.gather(*[one.call(later) for _ in range(8)])
        await one.use_one()
        await asyncio.gather(*[one.call(later) for _ in range(3)])
        await one.close()

    run(database, scenario)

    assert max(most[:8]) == connections
    assert most[8:] == [1, 1, 1]
