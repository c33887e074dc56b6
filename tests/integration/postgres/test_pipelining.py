"""Statements that are sent without waiting: in order, each while its sender goes on."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time

import psycopg
import pytest
import sqlalchemy as sa
from support import graphs, oracle

from scrapy_itemgraph import CreateItem
from scrapy_itemgraph.changesets import apply
from scrapy_itemgraph.model import tasks
from scrapy_itemgraph.model.operations import Changeset
from scrapy_itemgraph.model.request_operations import EnqueueRequest
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.postgres import backend_activity, event_loop, pipelining
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres.async_engine import AsyncEngine
from scrapy_itemgraph.postgres.pipelining import transaction
from scrapy_itemgraph.store.registry import crawls
from scrapy_itemgraph.store.registry import tasks as stored_tasks

SLOW = sa.text("SELECT CAST(:number AS int) FROM pg_sleep(0.3)")
ENDLESS = sa.text("SELECT :number FROM pg_sleep(600)")
QUICK = sa.text("SELECT CAST(:number AS int)")
WRONG = sa.text("SELECT 1 / CAST(:number AS int)")


@pytest.fixture
def within(database):
    """Return a function that runs another in a pipelined transaction of an event loop.

    That is the second one of its connection, whose server is known and not asked for first.
    """

    def run(function, *, cancelled_after=None):
        async def main():
            engine = engines.async_engine(database, pool_size=1)
            try:
                async with transaction(engine) as connection:
                    server = connection.sync_connection.info[engines.SERVER]
                async with (
                    asyncio.timeout(cancelled_after),
                    transaction(engine, server) as connection,
                ):
                    return await connection.run_sync(function)
            finally:
                async with engine.begin() as connection:  # the only one is still good
                    assert (
                        await connection.run_sync(sa.Connection.scalar, QUICK, {"number": 7}) == 7
                    )
                await engine.dispose()

        return asyncio.run(main())

    return run


def numbered(connection, *statements):
    """Send statements, and return what each gave, in the order in which they were sent."""
    answers = [
        connection.execute(statement, {"number": number})
        for number, statement in enumerate(statements)
    ]
    return [answer.scalar_one() for answer in answers]


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_statement_that_the_socket_does_not_take_at_once_is_sent_to_its_end(within, is_begun):
    """The rest of it is sent before its answer is waited for, which would never come."""
    size = 20 * 2**20
    long = sa.text("SELECT length(CAST(:text AS text))")

    def send(connection):
        if is_begun:
            connection.wait()
        first = connection.execute(long, {"text": "x" * size}).scalar_one()
        connection.execute(long, {"text": "x" * size})  # whose answer nobody reads
        return first

    assert within(send, cancelled_after=60) == size


def test_statements_are_done_in_the_order_in_which_they_are_sent(within):
    """A slow one does not let a quick one pass, and each has its own answer."""
    assert within(lambda c: numbered(c, QUICK, SLOW, QUICK, SLOW)) == [0, 1, 2, 3]


def test_its_sender_goes_on_while_postgresql_works(within):
    """The server is at work on a statement when the next is sent, and when it is not waited for.

    What is sent before the first answer goes with the beginning of the transaction.
    """

    def work(connection):
        connection.wait()
        answer = connection.execute(SLOW, {"number": 5})
        is_at_work = backend_activity.is_waiting(connection.connection.driver_connection)
        return is_at_work, answer.scalar_one()

    assert within(work) == (True, 5)


def test_what_nobody_reads_is_done_all_the_same(within, engine):
    """A statement whose answer is not looked at is done at the end of the transaction."""
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE noted (number int)")

    within(lambda c: c.execute(sa.text("INSERT INTO noted VALUES (:number)"), {"number": 3}))

    with engine.begin() as connection:
        assert connection.exec_driver_sql("SELECT number FROM noted").scalars().all() == [3]


def test_a_server_that_is_not_asked_further_is_idle_in_its_transaction(within, engine):
    """So it ends the transaction of a process that has stopped, whose locks others wait for."""
    state = "SELECT state FROM pg_stat_activity WHERE pid = %(pid)s"

    def work(connection):
        connection.wait()
        connection.execute(QUICK, {"number": 1})
        pid = connection.info[engines.PROCESS]
        with engine.connect() as beside:
            for _ in range(500):
                found = beside.exec_driver_sql(state, {"pid": pid}).scalar_one()
                if found != "active":
                    break
                time.sleep(0.01)
        return found

    assert within(work) == "idle in transaction"


def test_a_transaction_whose_client_is_at_work_is_kept_open(within, monkeypatch):
    """The server ends one in which nothing happens; a client that lets its loop turn is alive."""
    monkeypatch.setattr(pipelining, "LONGEST_SILENCE", 0.01)

    def work(connection):
        connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 500")
        for _ in range(20):
            time.sleep(0.1)
            event_loop.yield_to_loop(connection)
        return connection.execute(QUICK, {"number": 5}).scalar_one()

    assert within(work) == 5


def test_an_answer_is_read_like_sqlalchemys(within):
    """Functions of the store read both alike: rows by name, scalars, what was written."""
    pairs = sa.text("SELECT n AS one, 2 * n AS two FROM generate_series(1, :most) n")

    def work(connection):
        answer = connection.execute(pairs, {"most": 2})
        none = connection.execute(pairs, {"most": 0})
        rows = [(row.one, row.two) for row in answer]
        firsts = none.first(), none.scalar(), connection.execute(pairs, {"most": 1}).one()
        connection.exec_driver_sql("CREATE TEMPORARY TABLE there ON COMMIT DROP AS SELECT 1 AS n")
        gone = connection.exec_driver_sql("DELETE FROM there").rowcount
        again = connection.execute(pairs, {"most": 2})
        return rows, list(again.keys()), again.scalars(), firsts, gone

    assert within(work) == ([(1, 2), (2, 4)], ["one", "two"], [1, 2], (None, None, (1, 2)), 1)


@pytest.mark.parametrize("after", [0, 1])
def test_an_error_of_what_was_sent_is_raised_as_any_other(within, after):
    """Where an answer is read or at the end, as SQLAlchemy's; the transaction is rolled back."""
    with pytest.raises(sa.exc.DBAPIError, match="division by zero"):
        within(lambda c: numbered(c, WRONG, *[QUICK] * after))
    with pytest.raises(sa.exc.DBAPIError, match="division by zero"):
        within(lambda c: c.execute(WRONG, {"number": 0}))


def test_what_is_executed_is_prepared_and_nothing_else(within):
    """On the server's own connection a statement is parsed once, by those that are pipelined."""
    prepared = "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE %(like)s"

    def work(connection):
        numbered(connection, QUICK, QUICK)
        given = {"like": "SELECT CAST($1 AS int)"}
        return connection.exec_driver_sql(prepared, given).scalar_one()

    assert within(work) == 1


@pytest.mark.parametrize(
    ("statement", "then"),
    [
        ("SELECT pg_terminate_backend(pg_backend_pid())", "SELECT 1"),
        ("SET TRANSACTION READ ONLY", "CREATE TABLE refused (n int)"),
    ],
)
def test_a_connection_that_is_lost_is_said_to_be(database, statement, then):
    """The pool gives up what the server ended, and a server that takes no writes any more."""

    async def main():
        engine = engines.async_engine(database, pool_size=1)
        try:
            with pytest.raises(sa.exc.DBAPIError) as found:
                async with transaction(engine) as connection:
                    await connection.run_sync(work)
            assert found.value.connection_invalidated
            async with engine.begin() as connection:
                return await connection.run_sync(sa.Connection.scalar, QUICK, {"number": 7})
        finally:
            await engine.dispose()

    def work(connection):
        connection.exec_driver_sql(statement)
        connection.exec_driver_sql(then).rowcount  # noqa: B018 - it waits

    assert asyncio.run(main()) == 7


@pytest.mark.parametrize("error", [None, ValueError, asyncio.CancelledError])
def test_a_connection_that_cannot_leave_its_pipeline_is_given_up(database, caplog, error):
    """The pool takes no connection back that is still in a pipeline, and says no error of it.

    So it is where the server's last words have come, and the end of the connection has not; most
    of these kills hit that moment.
    """

    async def once(engine):
        with pytest.raises(error or sa.exc.DBAPIError) as found:
            async with transaction(engine) as connection:
                await connection.run_sync(work)
        if not error:
            assert found.value.connection_invalidated
        async with engine.begin() as connection:
            return await connection.run_sync(sa.Connection.scalar, QUICK, {"number": 7})

    def work(connection):
        process = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar()
        os.kill(process, signal.SIGTERM)
        if error:
            raise error

    async def main():
        engine = engines.async_engine(database, pool_size=1)
        try:
            assert [await once(engine) for _ in range(20)] == [7] * 20
        finally:
            await engine.dispose()

    asyncio.run(main())
    assert not caplog.records


def test_nothing_is_done_where_the_transaction_does_not_begin(database, engine, monkeypatch):
    """What went with a BEGIN that the server refused is not done by itself, nor is the commit."""
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE noted (number int)")
    insert = sa.text("INSERT INTO noted VALUES (:number)")

    async def main():
        one = engines.async_engine(database, pool_size=1)
        try:
            async with transaction(one) as connection:
                server = connection.sync_connection.info[engines.SERVER]
            monkeypatch.setattr(pipelining, "START", "BEGIN ISOLATION LEVEL NONE")
            async with transaction(one, server) as connection:
                await connection.run_sync(lambda c: c.execute(insert, {"number": 1}))
        finally:
            await one.dispose()

    with pytest.raises(sa.exc.DBAPIError, match="syntax error"):
        asyncio.run(main())
    with engine.begin() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM noted").scalar_one() == 0


@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize("other", [{engines.SERVER: "another"}, {engines.PROCESS: 1}])
def test_nothing_is_done_on_another_server(database, engine, monkeypatch, other, is_read):
    """The server itself skips what was sent with the beginning; the next time it is asked first."""
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE noted (number int)")
    insert = sa.text("INSERT INTO noted VALUES (:number)")

    def work(connection):
        answer = connection.execute(insert, {"number": 1})
        return answer.rowcount if is_read else None

    async def main():
        one = engines.async_engine(database, pool_size=1)
        try:
            async with transaction(one) as connection:
                info = connection.sync_connection.info
                server = info[engines.SERVER]
            info.update(other)  # as if a pooler, or a promotion, led elsewhere now
            with monkeypatch.context() as patch:
                patch.setattr(pipelining.PipelinedConnection, "_is_own_process", lambda _: True)
                with pytest.raises(pipelining.OtherServerError):
                    async with transaction(one, info[engines.SERVER]) as connection:
                        await connection.run_sync(work)
            async with transaction(one, server) as connection:
                assert connection.sync_connection.info[engines.SERVER] == server
        finally:
            await one.dispose()

    asyncio.run(main())
    with engine.begin() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM noted").scalar_one() == 0


def test_who_is_cancelled_leaves_nothing_under_way(within):
    """A statement that was sent is cancelled with its sender, and the connection is good."""
    with pytest.raises(TimeoutError):
        within(lambda c: numbered(c, ENDLESS, QUICK), cancelled_after=0.5)


@pytest.mark.parametrize("is_known", [False, True])
def test_who_is_cancelled_at_any_turn_of_the_loop_gets_no_other_error(database, is_known):
    """From taking the connection to COMMIT; the next transaction has a good one."""

    async def used(engine, server):
        async with transaction(engine, server) as connection:
            await connection.run_sync(lambda c: c.execute(QUICK, {"number": 1}).scalar_one())

    async def main():
        engine = engines.async_engine(database, pool_size=1)
        async with transaction(engine) as connection:
            server = connection.sync_connection.info[engines.SERVER] if is_known else None
        turns, was_cancelled = 0, True
        while was_cancelled:
            using = asyncio.ensure_future(used(engine, server))
            for _ in range(turns):
                await asyncio.sleep(0)
            using.cancel()
            (ended,) = await asyncio.gather(using, return_exceptions=True)
            was_cancelled = isinstance(ended, asyncio.CancelledError)
            assert was_cancelled or ended is None
            await used(engine, server)
            turns += 1
        await engine.dispose()
        return turns

    assert asyncio.run(main()) > 1


@pytest.mark.parametrize("begun", [transaction, AsyncEngine.begin])
def test_who_is_cancelled_where_psycopg_only_yields_logs_no_error(
    database, begun, caplog, monkeypatch
):
    """Psycopg yields to a busy loop where it waits for nothing, such as a needless rollback."""
    yields, cancelled_at = 0, 0

    async def sleep(_):
        nonlocal yields
        yields += 1
        if yields == cancelled_at:
            asyncio.current_task().cancel()
        await asyncio.sleep(0)

    async def used(engine):
        async with begun(engine) as connection:
            await connection.run_sync(lambda c: c.execute(QUICK, {"number": 1}).scalar_one())

    async def main():
        nonlocal yields, cancelled_at
        engine = engines.async_engine(database, pool_size=1)
        while cancelled_at <= yields:
            yields, cancelled_at = 0, cancelled_at + 1
            using = asyncio.ensure_future(used(engine))
            (ended,) = await asyncio.gather(using, return_exceptions=True)
            assert ended is None or isinstance(ended, asyncio.CancelledError)
        await engine.dispose()

    monkeypatch.setattr(psycopg.waiting, "MAX_BUSY_TIME", 0, raising=False)
    monkeypatch.setattr(psycopg.waiting, "sleep", sleep, raising=False)
    asyncio.run(main())

    assert not [one for one in caplog.records if one.levelno >= logging.ERROR]


def link(name):
    """Return the operation for a request of the callback `parse`."""
    data = {"url": f"http://shop.example/{name}", "request": {"callback": "parse"}}
    return EnqueueRequest(id=name, tags=(tasks.callback_tag("parse"),), data=data)


def test_a_large_commit_is_what_many_small_ones_are(within, engine):
    """New, known and repeated names, of both operations: items in their order, and their work."""
    with engine.begin() as connection:
        crawl = graphs.Crawl(connection)
        stored_tasks.register_callbacks(
            connection, crawl.id, "shop", [tasks.of_callback("parse", {})], None
        )
        crawl.end(None, *(link(f"{n}") for n in range(0, 50, 10)))
    names = [f"{n}" for n in range(3 * event_loop.CHUNK)]
    operations = [link(name) if int(name) % 3 else CreateItem(name) for name in names]
    operations += [link('odd "name" \\ {a,b}'), link("1")]

    def commit(connection):
        (applied,) = apply.apply(
            connection,
            [Changeset(operations=tuple(operations), outcome=Outcome.OK)],
            crawl=crawls.share_crawl(connection, crawl.id),
            worker_id=None,
        )
        return [note.label for note in applied.notes]

    labels = within(commit)

    known = {"0", "10", "20", "30", "40"}
    wanted = ["known" if name in known else "new" for name in names]
    assert labels == [*wanted, "new", "known"]
    with engine.begin() as connection:
        rows = connection.execute(sa.text("SELECT name FROM items ORDER BY id")).scalars().all()
        assert rows == [*sorted(known, key=int), *(n for n in names if n not in known), rows[-1]]
        assert rows[-1] == operations[-2].id
        oracle.assert_worklist_is_true(connection, crawl.id)
        work = connection.scalar(sa.text("SELECT count(*) FROM work"))
        assert work == sum(isinstance(one, EnqueueRequest) for one in operations[:-1]) + 2
