"""Commits of one worker: what becomes of changesets that the database takes, and refuses."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace
from datetime import timedelta

import pytest
from conftest import new_database
from sqlalchemy.exc import DBAPIError
from support import graphs

from scrapy_itemgraph import AttachBlob, CreateItem, DeleteItem, UpdateData
from scrapy_itemgraph.connections.identity import Identity
from scrapy_itemgraph.connections.transactions import Transactions
from scrapy_itemgraph.exceptions import BlobStoreError, DatabaseUnavailableError
from scrapy_itemgraph.graph.commits import Commits
from scrapy_itemgraph.model import operations
from scrapy_itemgraph.model.attempt_logs import LogLine
from scrapy_itemgraph.model.cookies import Cookie
from scrapy_itemgraph.model.operations import Changeset
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.store import blobs as stored_blobs

# A name that our checks would refuse, and that PostgreSQL cannot store.
REFUSED = CreateItem("A\0")
COOKIE = Cookie(jar="null", domain="a.example", path="/", name="n", cookie="{}")


@pytest.fixture(scope="module")
def engine(server_url, template):
    """Yield an engine on a database that the module's tests share, each with a crawl of its own."""
    with new_database(server_url, template) as url:
        engine = engines.sync_engine(url)
        yield engine
        engine.dispose()


class Contents:
    """Stores contents again in the database, or says that it cannot."""

    def __init__(self, connection):
        self.connection = connection
        self.error = None
        self.stored = []

    async def store(self, contents):
        """Store contents, as a transaction of its own would."""
        if self.error is not None:
            raise self.error
        self.stored += contents
        stored_blobs.pretend(self.connection, contents)
        self.connection.commit()


class Committing:
    """A worker of a crawl with the task `parse`, what it commits, and what others then see."""

    def __init__(self, connection):
        self.connection = connection
        self.crawl = graphs.Crawl(connection, uuid.uuid4().hex)
        self.crawl.register(parse={"tags": ["page"]})
        self.contents = Contents(connection)
        self.commits = None

    def claimed(self, *names):
        """Return the claims of new items."""
        claims = [self.crawl.claimed(name) for name in names]
        self.connection.commit()
        return claims

    def commit(self, *changesets, url=None, **more):
        """Commit changesets, if need be on another server; return what became of them."""
        return self.run(lambda commits: commits.commit(changesets, **more), url=url)

    def run(self, step, *, url=None):
        """Await what a function of this worker's Commits returns."""

        async def run():
            engine = engines.async_engine(url or self.connection.engine.url)
            patience = timedelta(minutes=1) if url is None else timedelta()
            transactions = Transactions(engine, patience)
            transactions.crawl_id = self.crawl.id
            own = Identity()
            own.id = self.crawl.worker
            self.commits = Commits(transactions, self.contents, own, spider="shop")
            try:
                return await step(self.commits)
            finally:
                await transactions.close()

        return asyncio.run(run())

    def data(self, name):
        """Return the data of an item, by a new transaction."""
        self.connection.rollback()
        item = self.crawl.get(name)
        return None if item is None else item.data


@pytest.fixture
def worker(engine):
    """Yield a worker in a crawl of its own."""
    with engine.connect() as connection:
        one = Committing(connection)
        connection.commit()
        yield one
        connection.rollback()


def ends(claim, *given, **fields):
    """Return the changeset of an execution whose operations nothing has checked."""
    outcome = fields.pop("outcome", Outcome.OK)
    return Changeset(operations=given, outcome=outcome, claim=claim, **fields)


def outcomes(result):
    """Return the outcomes of a commit."""
    return [one.outcome for one in result.applied]


def test_a_batch_is_one_transaction_in_its_order(worker):
    """Each changeset sees what those before it did."""
    first, second = worker.claimed("A", "B")

    result = worker.commit(
        ends(first, UpdateData({"n": 1}, id="B")),
        ends(second, UpdateData(lambda old: {**old, "n": old["n"] + 1})),
        ends(None, CreateItem("C")),
    )

    assert outcomes(result) == [Outcome.OK] * 3
    assert worker.data("B")["n"] == 2
    assert worker.data("C") == {}


def test_one_that_the_database_refuses_fails_alone(worker):
    """The others are committed one by one; its pair is held, with the error and its log."""
    good, bad, last = worker.claimed("A", "B", "C")
    log = (LogLine(0.1, "info", "at the page"),)

    result = worker.commit(
        ends(good, UpdateData({"kept": True})),
        ends(bad, UpdateData({"kept": True}), REFUSED, log=log),
        ends(last, UpdateData({"kept": True})),
    )

    assert outcomes(result) == [Outcome.OK, Outcome.FAILED, Outcome.OK]
    assert "NUL" in result.applied[1].error.message
    assert [worker.data(name).get("kept") for name in "ABC"] == [True, None, True]
    assert worker.crawl.state("B") == "held"
    (attempt,) = worker.crawl.rows("SELECT log FROM attempts WHERE log::text LIKE '%at the page%'")
    assert attempt.log[0]["message"] == "at the page"


def test_what_belongs_to_no_claim_fails_alone_too(worker):
    """Nobody's work is held for it; its error is returned."""
    (claim,) = worker.claimed("A")

    result = worker.commit(ends(None, REFUSED), ends(claim))

    assert outcomes(result) == [Outcome.FAILED, Outcome.OK]
    assert "NUL" in str(result.applied[0].error)
    assert worker.crawl.failures() == []


def test_a_failure_that_cannot_even_be_recorded_is_raised(worker, caplog):
    """There is nothing left out of it that could be, and nothing to be said of it here."""
    (claim,) = worker.claimed("A")
    odd = replace(claim, version="\0")

    with pytest.raises(DBAPIError, match="NUL"):
        worker.commit(ends(odd, outcome=Outcome.FAILED, error=graphs.ERROR))
    assert "refused" not in caplog.text

    assert worker.commit(ends(claim)).applied[0].outcome is Outcome.OK


def test_cookies_that_the_database_refuses_rob_nobody_of_work(worker):
    """They are tried by themselves, and not saved; the changesets are committed without them."""
    (claim,) = worker.claimed("A")
    odd = replace(COOKIE, name="\0")

    result = worker.commit(ends(claim, UpdateData({"n": 1})), cookies=[odd])

    assert outcomes(result) == [Outcome.OK]
    assert worker.data("A")["n"] == 1


def test_state_is_saved_with_the_batch_and_without_one(worker):
    """Also where nothing else is to be committed."""
    worker.commit(state={"depth": "3"})

    (row,) = worker.crawl.rows(
        "SELECT key FROM spider_state WHERE crawl_id = :c", c=worker.crawl.id
    )
    assert row.key == "depth"


def test_an_outage_refuses_nothing(worker, caplog):
    """It is for who asked to wait; no changeset is taken for the one that is at fault."""
    claims = worker.claimed("A", "B")

    for one in claims:
        with pytest.raises(DatabaseUnavailableError):
            worker.commit(ends(one), url="postgresql://127.0.0.1:1/none")

    assert "refused" not in caplog.text.replace("Connection refused", "")
    assert outcomes(worker.commit(*map(ends, claims))) == [Outcome.OK, Outcome.OK]


def test_a_claim_that_was_lost_is_said_and_is_no_witness(worker):
    """The witness is the last claim whose end is known to be committed."""
    kept, lost = worker.claimed("A", "B")
    worker.crawl.release(lost)
    worker.connection.commit()

    result = worker.commit(ends(kept), ends(lost, UpdateData({"n": 1})))

    assert outcomes(result) == [Outcome.OK, None]
    assert worker.commits.witness is kept
    assert "n" not in worker.data("B")


def test_in_flight_pairs_are_written_where_they_are_given(worker):
    """Without them the result says so, and somebody else has to write them."""
    first, second = worker.claimed("A", "B")

    written = worker.commit(ends(first), in_flight=[(second.item_id, second.task_id)])
    unwritten = worker.commit(ends(second))

    assert (written.is_written, unwritten.is_written) == (True, False)


# Names


def test_names_that_were_freed_are_counted_and_only_grow(worker):
    """A database that is another one begins a new count, and no name is known to be taken."""
    (claim,) = worker.claimed("A")

    async def delete(commits):
        await commits.commit([ends(claim, DeleteItem())])
        await commits.commit([ends(None, CreateItem("B"))])
        return commits.names_freed

    freed = worker.run(delete)
    commits = worker.commits
    assert freed[0] == 0
    assert freed[1] >= 1
    commits.see_freed(0)
    assert commits.names_freed == freed
    commits.forget_names()
    assert commits.names_freed == (1, 0)


# Contents that were collected meanwhile


def attaching(claim):
    """Return a changeset whose content was stored, and is there no more."""
    operation = operations.checked(AttachBlob("page", b"<p>", id="A"), "here")
    operation.content.number = 2**40
    operation.content.digest = b"d" * 32
    return ends(claim, operation, UpdateData({"n": 1}, id="A"), attached=(operation,))


def test_contents_that_are_gone_are_stored_again(worker):
    """Then the same changesets are committed, those without contents as well."""
    first, second = worker.claimed("A", "B")

    result = worker.commit(attaching(first), ends(second, UpdateData({"n": 2})))

    assert outcomes(result) == [Outcome.OK, Outcome.OK]
    assert len(worker.contents.stored) == 1
    assert (worker.data("A")["n"], worker.data("B")["n"]) == (1, 2)


def test_work_whose_contents_cannot_be_stored_is_tried_again(worker):
    """In a minute, with nothing of it kept; the other changesets are committed."""
    first, second = worker.claimed("A", "B")
    worker.contents.error = BlobStoreError("the bucket is gone")

    result = worker.commit(attaching(first), ends(second, UpdateData({"n": 2})))

    assert outcomes(result) == [Outcome.RETRY, Outcome.OK]
    assert "n" not in worker.data("A")
    (row,) = worker.crawl.rows(
        "SELECT not_before > now() + interval '50 s' AS waits FROM work WHERE item_id = :i",
        i=first.item_id,
    )
    assert row.waits


def test_what_belongs_to_no_claim_is_left_out_where_its_contents_cannot_be_stored(worker):
    """Nobody would try it again; nothing of it is kept."""
    worker.claimed("A")
    worker.contents.error = BlobStoreError("the bucket is gone")
    one = attaching(None)

    result = worker.commit(replace(one, operations=(CreateItem("C"), *one.operations)))

    assert outcomes(result) == [Outcome.OK]
    assert worker.data("C") is None
