"""What people set of limits, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from support.graphs import SLOT, Crawl
from support.limits_set import HOUR, a_limit, declare, film_crawl, hold, shown, used

from scrapy_itemgraph import RateLimit
from scrapy_itemgraph.exceptions import NotFoundError, OperationError
from scrapy_itemgraph.model import limits
from scrapy_itemgraph.model.limits import SlotFeedback, SlotTerms, Terms, Use
from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store.admin import limit_changes, limit_reports
from scrapy_itemgraph.store.limits import holdings
from scrapy_itemgraph.store.worklist import claims as stored_claims
from scrapy_itemgraph.store.worklist.admission import Admission

SCRAPY_TERMS = Terms(concurrency=8)


@pytest.fixture
def news(engine):
    """Return a function that tells what workers were notified of since it was last called."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        driver = connection.connection.driver_connection
        driver.execute("LISTEN itemgraph")

        def told() -> set[str]:
            driver.execute("SELECT 1")
            return {one.payload for one in driver.notifies(timeout=0)}

        yield told


def claim(crawl, connection=None, *, worker=None):
    """Claim as a worker that holds nothing yet, under Scrapy's limits; return the items."""
    connection = connection or crawl.connection
    admission = Admission(slot_terms=SlotTerms(SCRAPY_TERMS))
    engine.hot_path(connection)
    claims = stored_claims.claim(
        connection,
        crawl_id=crawl.id,
        worker_id=worker or crawl.worker,
        tasks=crawl.registration.tasks,
        limit=25,
        admission=admission,
    )
    return [one.item.id for one in claims]


# What may be set


def test_a_block_by_a_person(connection):
    """A blocked slot is not claimed from, until the block ends or is ended."""
    crawl = Crawl.of(connection)
    crawl.work("A")

    changed = limit_changes.block(connection, SLOT, for_=HOUR)

    left = changed.limit.blocked_until - connection.scalar(engine.NOW)
    assert HOUR - timedelta(minutes=1) < left <= HOUR
    assert changed.limit.blocked_by == "person"
    assert claim(crawl) == []

    ended = limit_changes.unblock(connection, SLOT)

    assert ended.is_changed
    assert ended.limit.blocked_until is None
    assert claim(crawl) == ["A"]
    assert not limit_changes.unblock(connection, SLOT).is_changed


def test_an_unblock_reopens_a_queue_beside_holders(connection):
    """A queue that a refused worker put off is looked into again, also while another has units."""
    crawl = Crawl.of(connection)
    crawl.work("A")
    hold(crawl, terms=SCRAPY_TERMS)
    limit_changes.block(connection, SLOT, for_=HOUR)
    other = crawl.new_worker()
    assert claim(crawl, worker=other) == []

    limit_changes.unblock(connection, SLOT)

    assert claim(crawl, worker=other) == ["A"]


def test_a_lower_delay_reopens_a_queue(connection):
    """A queue that waits for a start a day away is looked into again."""
    crawl = Crawl.of(connection)
    crawl.work("A")
    used(crawl)
    limit_changes.set_delay(connection, SLOT, 86_400)
    assert claim(crawl) == []
    assert limit_reports.listed(connection)[0].gap == 86_400

    limit_changes.set_delay(connection, SLOT, None)

    assert claim(crawl) == ["A"]


def test_a_change_leaves_a_queue_with_its_holder(connection):
    """Who has a slot for itself keeps its queues."""
    crawl = Crawl.of(connection)
    crawl.work("A")
    hold(crawl)
    crawl.connection.execute(sa.text("UPDATE queues SET holder = :w"), {"w": crawl.worker})

    limit_changes.block(connection, SLOT, for_=HOUR)
    limit_changes.unblock(connection, SLOT)

    assert [row.holder for row in crawl.rows("SELECT holder FROM queues")] == [crawl.worker]


def test_a_block_replaces_a_persons_and_is_no_shorter_than_the_sites(connection):
    """A person may shorten a person's block, and what a site asked for only by unblocking."""
    crawl = Crawl.of(connection)
    crawl.work("A")
    limit_changes.block(connection, SLOT, for_=HOUR)
    shorter = limit_changes.block(connection, SLOT, for_=timedelta(minutes=1)).limit.blocked_until
    assert shorter < connection.scalar(engine.NOW) + timedelta(minutes=2)

    limit_changes.unblock(connection, SLOT)
    answer = SlotFeedback(slot=SLOT, blocked_for=3600.0, blocked_by="429")
    holdings.save_feedback(connection, crawl.worker, [answer])
    assert shown(connection).blocked_by == "429"
    longer = limit_changes.block(connection, SLOT, for_=timedelta(minutes=1)).limit

    assert longer.blocked_by == "person"
    assert longer.blocked_until > connection.scalar(engine.NOW) + timedelta(minutes=50)


@pytest.mark.parametrize("refused_first", [True, False])
def test_an_unblock_beside_a_claim_that_is_being_refused(crawl, pair, refused_first):
    """A queue that is put off while its slot is unblocked does not stay so."""
    claimer, person = pair
    crawl.work("A")
    limit_changes.block(crawl.connection, SLOT, for_=HOUR)
    crawl.connection.commit()

    def refused(connection):
        return claim(crawl, connection)

    if refused_first:
        assert claimer.run(refused) == []
        unblocked = person.start(limit_changes.unblock, SLOT)
        person.until_blocked()
        claimer.commit()
        unblocked.result()
        person.commit()
    else:
        person.run(limit_changes.unblock, SLOT)
        assert claimer.run(refused) == []
        claimer.commit()
        person.commit()

    assert claim(crawl) == ["A"]


def test_a_block_reaches_running_workers(crawl, engine, news):
    """Holders are told, and the crawls that have work of the slot."""
    crawl.work("A")
    films = film_crawl(crawl)
    hold(crawl)
    crawl.connection.commit()
    news()

    for change in (
        lambda c: limit_changes.block(c, SLOT, for_=HOUR),
        lambda c: limit_changes.unblock(c, SLOT),
        lambda c: limit_changes.set_delay(c, SLOT, 2),
        lambda c: limit_changes.set_delay(c, SLOT, None),
        lambda c: limit_changes.set_limit(c, SLOT, RateLimit(concurrency=2)),
    ):
        with engine.begin() as connection:
            change(connection)

        assert news() == {f"process {crawl.worker}", str(crawl.id), str(films.id)}

    with engine.begin() as connection:
        limit_changes.unblock(connection, SLOT)
        limit_changes.set_delay(connection, SLOT, None)

    assert news() == set()


def test_a_set_limit_reaches_the_crawls_that_keep_to_it(crawl, engine, news):
    """Workers of a crawl hear of its task's limit, and those of another do not."""
    declare(crawl, a_limit())
    film_crawl(crawl)
    crawl.connection.commit()
    news()

    with engine.begin() as connection:
        changed = limit_changes.set_limit(connection, "task:shop/parse", "1/s")

    assert changed.limit.gap == 1.0
    assert news() == {str(crawl.id)}


def test_a_set_delay_does_not_undercut_the_settings(connection):
    """A slot keeps the longer of what was set and what its last holder's settings say."""
    crawl = Crawl.of(connection)
    crawl.work("A")
    hold(crawl, terms=Terms(gap=2.0))

    assert limit_changes.set_delay(connection, SLOT, 0.5).limit.gap == 2.0
    assert limit_changes.set_delay(connection, SLOT, 9).limit.gap == 9.0
    assert hold(crawl, terms=Terms(gap=2.0)).in_force.gap == 9.0
    assert limit_changes.set_delay(connection, SLOT, None).limit.set_gap is None
    assert hold(crawl, terms=Terms(gap=2.0)).in_force.gap == 2.0


def test_the_delay_that_is_meant_is_shown_beside_the_least_gap(connection):
    """Scrapy's jitter makes gaps of half the DOWNLOAD_DELAY, which is what is shown."""
    crawl = Crawl.of(connection)
    crawl.work("A")

    hold(crawl, terms=Terms(gap=2.0, delay=4.0))

    assert (shown(connection).gap, shown(connection).delay) == (2.0, 4.0)
    slower = limit_changes.set_delay(connection, SLOT, 3).limit
    assert (slower.gap, slower.delay) == (3.0, 4.0)
    hold(crawl, terms=Terms(gap=2.0, delay=4.0))
    assert limit_changes.set_delay(connection, SLOT, 9).limit.delay == 9.0
    hold(crawl, terms=Terms(gap=2.0, delay=4.0))
    limit_changes.set_delay(connection, SLOT, None)
    hold(crawl, terms=Terms(gap=2.0, delay=4.0))
    assert (shown(connection).gap, shown(connection).delay) == (2.0, 4.0)


def test_a_delay_that_was_taken_back_is_kept_no_more(connection):
    """What was kept because it was set is not taken for what the settings say."""
    crawl = Crawl.of(connection)
    crawl.work("A")
    limit_changes.set_delay(connection, SLOT, 9)
    hold(crawl, terms=Terms(gap=2.0))
    holdings.release_all(connection, crawl.worker, [])

    assert limit_changes.set_delay(connection, SLOT, 5).limit.gap == 5.0
    assert limit_changes.set_delay(connection, SLOT, None).limit.gap == 0.0


def test_a_set_delay_wins_over_robots_txt(connection):
    """A person's delay is kept in place of Crawl-delay, which comes back when it is taken back."""
    crawl = Crawl.of(connection)
    crawl.work("A")
    holdings.save_feedback(connection, crawl.worker, [SlotFeedback(slot=SLOT, crawl_delay=20.0)])

    assert shown(connection).gap == 20.0
    assert limit_changes.set_delay(connection, SLOT, 5).limit.gap == 5.0
    assert limit_changes.set_delay(connection, SLOT, None).limit.gap == 20.0


def test_a_set_limit_takes_the_place_of_the_code(connection):
    """Rate and concurrency are set apart from each other; what is left out is as declared."""
    crawl = Crawl.of(connection)
    (number,) = declare(crawl, a_limit(concurrency=4)).values()

    def terms():
        use = Use(limit_id=number, declared=Terms(gap=10.0, concurrency=4))
        return holdings.acquire(connection, crawl.worker, [use])[number].in_force

    limit_changes.set_limit(connection, "task:shop/parse", "5/s")
    assert terms() == Terms(gap=0.2, concurrency=4)
    limit_changes.set_limit(connection, "task:shop/parse", RateLimit(concurrency=9))
    assert terms() == Terms(gap=10.0, concurrency=9)
    limit_changes.set_limit(connection, "task:shop/parse", RateLimit("5/s", concurrency=1))
    assert terms() == Terms(gap=0.2, concurrency=1)
    limit_changes.set_limit(connection, "task:shop/parse", None)
    assert terms() == Terms(gap=10.0, concurrency=4)


# What is refused


@pytest.mark.parametrize("seconds", [0, -1, 86_401, 31_536_000, float("nan"), True, "2"])
def test_a_delay_that_cannot_be(connection, seconds):
    """A delay is above zero and at most a day."""
    with pytest.raises(OperationError, match=r"at most 86,400 \(a day\)"):
        limit_changes.set_delay(connection, SLOT, seconds)

    assert shown(connection) is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "one of the two"),
        ({"until": datetime(2100, 1, 1, tzinfo=UTC), "for_": HOUR}, "one of the two"),
        ({"until": datetime(2020, 1, 1, tzinfo=UTC)}, "is past"),
        ({"until": datetime(2300, 1, 1, tzinfo=UTC)}, "hundred years"),
        ({"until": datetime(2100, 1, 1)}, "time zone"),  # noqa: DTZ001 - what is refused
        ({"until": "2100-01-01"}, "time zone"),
        ({"for_": timedelta()}, "above 0"),
        ({"for_": timedelta(days=40_000)}, "a hundred years at most"),
    ],
)
def test_a_block_that_cannot_be(connection, given, said):
    """A block ends in the future, within a hundred years."""
    with pytest.raises(OperationError, match=said):
        limit_changes.block(connection, SLOT, **given)

    assert shown(connection) is None


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("", OperationError, "no slot is called"),
        ("slot:", NotFoundError, "ever named"),
        ("x" * 256, OperationError, "1 to 255 bytes"),
        ("a\0b", OperationError, "NUL"),
        (None, OperationError, "is text"),
        ("file:///tmp/x", OperationError, "has no host"),
        ("global", OperationError, "is no slot"),
        ("task:shop/parse", OperationError, "slot:task:shop/parse"),
        ("b.example", NotFoundError, "ever named"),
        ("a.exmple", NotFoundError, "did you mean 'a.example'"),
    ],
)
def test_a_name_that_is_no_slot(connection, name, error, said):
    """What is no slot's name is refused, and what no work has named has nothing to unblock."""
    Crawl.of(connection).work("A")

    with pytest.raises(error, match=said):
        limit_changes.unblock(connection, name)
    with pytest.raises(error, match=said):
        limit_changes.set_delay(connection, name, None)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("task:shop/prase", "did you mean 'task:shop/parse'.*there are global, task:shop/parse"),
        ("group:x", "there are global"),
        ("tags:shop/parse:a", "no task declares"),
    ],
)
def test_a_limit_that_nothing_declares(connection, name, said):
    """A limit that no task declares is refused, with those that there are."""
    declare(Crawl.of(connection), a_limit(), a_limit(limits.GLOBAL, ""))

    with pytest.raises(NotFoundError, match=said):
        limit_changes.set_limit(connection, name, "1/s")


@pytest.mark.parametrize("rate", ["fast", "0/s", "-1/s", "1/2d", "1", 5])
def test_a_rate_that_is_none(connection, rate):
    """What is no rate is refused."""
    with pytest.raises(OperationError, match="such as"):
        limit_changes.set_limit(connection, SLOT, rate)


@pytest.mark.parametrize(
    "written",
    ["a.example", "https://a.example/page?x=1", "A.Example", "a.example:8080", "slot:a.example"],
)
def test_a_slot_is_known_by_its_host(connection, written):
    """A slot may be named by a page's URL, or a host in other letters or with a port."""
    Crawl.of(connection).work("A")

    changed = limit_changes.block(connection, written, for_=HOUR)

    assert (changed.limit.name, changed.is_new) == (SLOT, False)


def test_a_slot_that_no_work_names_yet(connection):
    """A slot can be blocked ahead of its work; it is said to be new, and what it resembles."""
    crawl = Crawl.of(connection)
    crawl.work("A")

    changed = limit_changes.block(connection, "http://B.Example/", for_=HOUR)
    typo = limit_changes.set_delay(connection, "a.exmple", 2)
    again = limit_changes.set_delay(connection, "a.exmple", 3)
    crawl.work("B", data={"url": "http://b.example/1"})

    assert (changed.limit.name, changed.is_new) == ("b.example", True)
    assert (typo.is_new, typo.hint) == (True, "; did you mean 'a.example'?")
    assert not again.is_new
    assert claim(crawl) == ["A"]
