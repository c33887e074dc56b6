"""Statements that are sent ahead: in order, each while its sender goes on."""

from __future__ import annotations

import asyncio

import graphs
import oracle
import pytest
import sqlalchemy as sa

from scrapy_itemgraph import CreateItem
from scrapy_itemgraph.changesets import apply
from scrapy_itemgraph.model import tasks
from scrapy_itemgraph.model.operations import Changeset, EnqueueRequest
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres.pipelining import Pipeline
from scrapy_itemgraph.store.registry import tasks as stored_tasks

SLOW = sa.text("SELECT CAST(:number AS int) FROM pg_sleep(0.3)")
ENDLESS = sa.text("SELECT :number FROM pg_sleep(600)")
MANY = engines.SLICE + 1
QUICK = sa.text("SELECT CAST(:number AS int)")
WRONG = sa.text("SELECT 1 / CAST(:number AS int)")


@pytest.fixture
def within(database):
    """Return a function that runs another in a transaction of an event loop's connection."""

    def run(function, *, cancelled_after=None):
        async def main():
            engine = engines.async_engine(database, pool_size=1)
            try:
                async with asyncio.timeout(cancelled_after), engine.begin() as connection:
                    return await connection.run_sync(function)
            finally:
                async with engine.begin() as connection:  # the only one is still good
                    assert (await connection.execute(QUICK, {"number": 7})).scalar_one() == 7
                await engine.dispose()

        return asyncio.run(main())

    return run


def numbered(connection, *statements):
    """Send statements ahead, and return what each gave, in the order in which they were done."""
    given = []
    with Pipeline(connection, MANY) as ahead:
        for number, statement in enumerate(statements):
            ahead.execute(statement, {"number": number}, lambda r: given.append(r.scalar_one()))
    return given


def test_statements_are_done_in_the_order_in_which_they_are_sent(within):
    """A slow one does not let a quick one pass, and all are done at the end."""
    assert within(lambda c: numbered(c, QUICK, SLOW, QUICK, SLOW)) in (
        [0, "1", 2, "3"],
        [0, 1, 2, 3],
    )


def test_without_a_loop_each_is_done_at_once(engine):
    """Commands and tests run the same functions on connections that block."""
    with engine.begin() as connection, Pipeline(connection, MANY) as ahead:
        done = []
        ahead.execute(QUICK, {"number": 1}, lambda result: done.append(result.scalar_one()))
        assert done == [1]


def test_its_sender_goes_on_while_postgresql_works(within):
    """What comes next is made ready before the answer is there."""

    def work(connection):
        done = []
        with Pipeline(connection, MANY) as ahead:
            ahead.execute(SLOW, {"number": 0}, lambda _: done.append("answer"))
            done.append("next")
        return done

    assert within(work) == ["next", "answer"]


def test_few_rows_are_not_sent_ahead(within):
    """A commit of one slice, as nearly all are, waits for its statement and no longer."""

    def work(connection):
        done = []
        with Pipeline(connection, engines.SLICE) as ahead:
            ahead.execute(QUICK, {"number": 0}, lambda _: done.append("answer"))
            done.append("next")
        return done

    assert within(work) == ["answer", "next"]


@pytest.mark.parametrize("after", [0, 1])
def test_an_error_of_what_was_sent_ahead_is_raised_as_any_other(within, after):
    """At the next statement or at the end, as SQLAlchemy's; the transaction is rolled back."""
    with pytest.raises(sa.exc.DBAPIError, match="division by zero"):
        within(lambda c: numbered(c, WRONG, *[QUICK] * after))


def test_who_is_cancelled_leaves_nothing_under_way(within):
    """A statement that was sent ahead is cancelled with its sender, and the connection is good."""
    with pytest.raises(TimeoutError):
        within(lambda c: numbered(c, ENDLESS, QUICK), cancelled_after=0.5)


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
    names = [f"{n}" for n in range(3 * engines.SLICE)]
    operations = [link(name) if int(name) % 3 else CreateItem(name) for name in names]
    operations += [link('odd "name" \\ {a,b}'), link("1")]

    def commit(connection):
        (applied,) = apply.apply(
            connection,
            [Changeset(operations=tuple(operations), outcome=Outcome.OK)],
            crawl_id=crawl.id,
            worker_id=None,
            now=engines.hot_path(connection),
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
