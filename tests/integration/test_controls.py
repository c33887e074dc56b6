"""What people see of limits and set of them, and how it reaches the workers."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
import sqlalchemy as sa
from graphs import LEASE, SLOT, Crawl
from scrapy import cmdline
from scrapy.settings import Settings

from scrapy_itemgraph import RateLimit
from scrapy_itemgraph.exceptions import NotFoundError, OperationError
from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.model import limits
from scrapy_itemgraph.model.limits import SlotFeedback, Terms, Use
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store import slots as stored_slots
from scrapy_itemgraph.store.admin import explain, limits_report, status
from scrapy_itemgraph.store.limits import declared as declared_limits
from scrapy_itemgraph.store.limits import holdings
from scrapy_itemgraph.store.registry import runs, workers
from scrapy_itemgraph.store.worklist import claims as stored_claims
from scrapy_itemgraph.store.worklist import refresh
from scrapy_itemgraph.store.worklist.admission import Admission

HOUR = timedelta(hours=1)
SCRAPY_TERMS = Terms(concurrency=8)


@dataclass(frozen=True)
class Ran:
    """What a command wrote, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def document(self):
        """The JSON document on standard output."""
        return json.loads(self.out)


@pytest.fixture
def crawl(engine):
    """Yield a crawl, on a connection that `scrapy` commits before each command."""
    with engine.connect() as connection:
        yield Crawl.of(connection)
        connection.rollback()


@pytest.fixture
def scrapy(capsys, monkeypatch, tmp_path, database, crawl):
    """Return a function that runs `scrapy itemgraph` in this process, outside a project."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments) -> Ran:
        crawl.connection.commit()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
        given = Settings({"ITEMGRAPH_DATABASE_URL": database}, priority="project")
        capsys.readouterr()
        with pytest.raises(SystemExit) as exited:
            cmdline.execute(["scrapy", "itemgraph", *arguments], given)
        written = capsys.readouterr()
        return Ran(exited.value.code, written.out, written.err)

    return run


@pytest.fixture
def news(database):
    """Return a function that tells what workers were notified of since it was last called."""
    url = database.replace("+psycopg", "")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("LISTEN itemgraph")

        def told() -> set[str]:
            connection.execute("SELECT 1")
            return {one.payload for one in connection.notifies(timeout=0)}

        yield told


def hold(crawl, slot=SLOT, terms=None, *, worker=None, wants=1):
    """Let a worker ask for a slot, and return what it got."""
    (number,) = stored_slots.intern_slots(crawl.connection, [slot]).values()
    use = Use(limit_id=number, terms=terms or Terms(gap=30.0), wants=wants)
    return holdings.acquire(crawl.connection, worker or crawl.worker, [use])[number]


def used(crawl, slot=SLOT, *, ago=0.0):
    """Note that a request of a slot started a while ago."""
    given = {"slot": slot, "ago": ago}
    crawl.connection.execute(
        sa.text(
            "UPDATE limits SET last_at = clock_timestamp() - make_interval(secs => :ago) "
            "WHERE name = :slot"
        ),
        given,
    )


def declare(crawl, *declared, task="parse"):
    """Declare limits of a task."""
    made = declared_limits.register(crawl.connection, {crawl.task_id(task): declared})
    refresh.refresh(crawl.connection, [row.id for row in crawl.rows("SELECT id FROM items")])
    return {(one.kind, one.name): number for number, one in made.declared.items()}


def a_limit(kind=limits.TASK, name="shop/parse", gap=10.0, concurrency=None, tags=()):
    """Return a limit as the code declares it."""
    return limits.Limit(kind=kind, name=name, gap=gap, concurrency=concurrency, tags=tags)


def claim(crawl, connection=None, *, worker=None):
    """Claim as a worker that holds nothing yet, under Scrapy's limits; return the items."""
    connection = connection or crawl.connection
    admission = Admission(slot_terms=lambda _: SCRAPY_TERMS)
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


def shown(connection, name=SLOT, **given):
    """Return the limit of a name as it is listed."""
    return next(
        (one for one in limits_report.listed(connection, **given) if one.name == name), None
    )


def why(crawl, name="A", task="parse"):
    """Return the explanation of an item's task."""
    (found,) = explain.explain(crawl.connection, crawl.id, crawl.item_id(name), task)
    return found


def remaining(crawl):
    """Return what is left of a crawl."""
    kinds = stored_claims.open_kinds(crawl.connection, crawl.id, crawl.registration.tasks)
    until = crawl.connection.scalar(engine.NOW)
    numbers = [kind.id for kind in kinds]
    return runs.remaining(crawl.connection, crawl.id, kinds=numbers, until=until)


def film_crawl(crawl):
    """Make another crawl with work of the same slot."""
    films = Crawl(crawl.connection, "films")
    films.register(parse={"tags": ["page"]})
    films.work("F")
    return films


# What is listed


def test_slots_are_listed_with_their_work(connection):
    """A slot with work is listed, the one with the most first, over all crawls or for one."""
    crawl = Crawl.of(connection)
    crawl.work("A")
    crawl.work("B", data={"url": "http://b.example/"})
    films = film_crawl(crawl)

    everywhere = limits_report.listed(connection)
    of_books = limits_report.listed(connection, crawl_id=crawl.id)
    first = limits_report.listed(connection, limit=1)

    assert [(one.name, one.work) for one in everywhere] == [(SLOT, 2), ("b.example", 1)]
    assert [(one.name, one.work) for one in of_books] == [(SLOT, 1), ("b.example", 1)]
    assert [one.name for one in first] == [SLOT]
    assert [one.name for one in limits_report.listed(connection, crawl_id=films.id)] == [SLOT]


def test_work_that_cannot_be_claimed_by_itself_is_not_counted(connection):
    """Work that is claimed, or waits for its time, is not work that waits in a slot."""
    crawl = Crawl.of(connection)
    crawl.claimed("A")
    crawl.work("B", not_before=datetime.now(UTC) + HOUR)

    assert shown(connection) is None


def test_holders_and_those_who_wait_are_listed(connection):
    """Who has a slot stands beside who asks for it."""
    crawl = Crawl.of(connection)
    other = crawl.new_worker()
    hold(crawl)
    hold(crawl, worker=other)

    found = shown(connection)

    assert (found.gap, found.work) == (30.0, 0)
    ((holder,), (waiting,)) = (found.holders, found.waiting)
    assert (holder.worker, holder.crawl, holder.host, holder.units) == (
        crawl.worker,
        "books",
        "here",
        1,
    )
    assert (waiting.worker, waiting.units) == (other, 0)


def test_limits_with_names_are_listed_before_slots(connection):
    """Global, group, task and tag limits have the names that `set-limit` takes."""
    crawl = Crawl.of(connection)
    crawl.work("A")
    declare(
        crawl,
        a_limit(limits.GLOBAL, "", 0.1, 8),
        a_limit(limits.GROUP, "par*", 1.0),
        a_limit(),
        a_limit(limits.TAGS, "shop/parse:slow", 60.0, tags=("slow",)),
    )

    found = limits_report.listed(connection)

    assert [(one.name, one.gap, one.concurrency) for one in found] == [
        ("global", 0.1, 8),
        ("group:par*", 1.0, None),
        ("tags:shop/parse:slow", 60.0, None),
        ("task:shop/parse", 10.0, None),
        (SLOT, 0.0, None),
    ]


def test_a_limit_that_nothing_declares_any_more_is_not_listed(connection):
    """What an earlier version of the code declared is gone from the list, unless it was set."""
    crawl = Crawl.of(connection)
    declare(crawl, a_limit(), a_limit(limits.GROUP, "par*", 1.0))
    declare(crawl, a_limit(limits.GROUP, "par*", 1.0))

    assert shown(connection, "task:shop/parse") is None
    limits_report.set_limit(connection, "task:shop/parse", "1/s")
    assert shown(connection, "task:shop/parse").set_gap == 1.0


def test_a_slot_that_reads_like_another_limit_has_a_prefix(connection):
    """A slot that is named as a limit can be told from it, and be named."""
    crawl = Crawl.of(connection)
    for name in ("global", "task:shop/parse"):
        crawl.work(name, data={"url": "http://a.example/", "download_slot": name})

    names = [one.name for one in limits_report.listed(connection)]
    changed = limits_report.set_delay(connection, "slot:global", 2)

    assert names == ["slot:global", "slot:task:shop/parse"]
    assert not changed.is_new
    assert changed.limit.name == "slot:global"


# What may be set


def test_a_block_by_a_person(connection):
    """A blocked slot is not claimed from, until the block ends or is ended."""
    crawl = Crawl.of(connection)
    crawl.work("A")

    changed = limits_report.block(connection, SLOT, for_=HOUR)

    left = changed.limit.blocked_until - connection.scalar(engine.NOW)
    assert HOUR - timedelta(minutes=1) < left <= HOUR
    assert changed.limit.blocked_by == "person"
    assert claim(crawl) == []

    ended = limits_report.unblock(connection, SLOT)

    assert ended.is_changed
    assert ended.limit.blocked_until is None
    assert claim(crawl) == ["A"]
    assert not limits_report.unblock(connection, SLOT).is_changed


def test_an_unblock_reopens_a_queue_beside_holders(connection):
    """A queue that a refused worker put off is looked into again, also while another has units."""
    crawl = Crawl.of(connection)
    crawl.work("A")
    hold(crawl, terms=SCRAPY_TERMS)
    limits_report.block(connection, SLOT, for_=HOUR)
    other = crawl.new_worker()
    assert claim(crawl, worker=other) == []

    limits_report.unblock(connection, SLOT)

    assert claim(crawl, worker=other) == ["A"]


def test_a_lower_delay_reopens_a_queue(connection):
    """A queue that waits for a start a day away is looked into again."""
    crawl = Crawl.of(connection)
    crawl.work("A")
    used(crawl)
    limits_report.set_delay(connection, SLOT, 86_400)
    assert claim(crawl) == []
    assert limits_report.listed(connection)[0].gap == 86_400

    limits_report.set_delay(connection, SLOT, None)

    assert claim(crawl) == ["A"]


def test_a_change_leaves_a_queue_with_its_holder(connection):
    """Who has a slot for itself keeps its queues."""
    crawl = Crawl.of(connection)
    crawl.work("A")
    hold(crawl)
    crawl.connection.execute(sa.text("UPDATE queues SET holder = :w"), {"w": crawl.worker})

    limits_report.block(connection, SLOT, for_=HOUR)
    limits_report.unblock(connection, SLOT)

    assert [row.holder for row in crawl.rows("SELECT holder FROM queues")] == [crawl.worker]


def test_a_block_replaces_a_persons_and_is_no_shorter_than_the_sites(connection):
    """A person may shorten a person's block, and what a site asked for only by unblocking."""
    crawl = Crawl.of(connection)
    crawl.work("A")
    limits_report.block(connection, SLOT, for_=HOUR)
    shorter = limits_report.block(connection, SLOT, for_=timedelta(minutes=1)).limit.blocked_until
    assert shorter < connection.scalar(engine.NOW) + timedelta(minutes=2)

    limits_report.unblock(connection, SLOT)
    answer = SlotFeedback(slot=SLOT, blocked_for=3600.0, blocked_by="429")
    holdings.save_feedback(connection, crawl.worker, [answer])
    assert shown(connection).blocked_by == "429"
    longer = limits_report.block(connection, SLOT, for_=timedelta(minutes=1)).limit

    assert longer.blocked_by == "person"
    assert longer.blocked_until > connection.scalar(engine.NOW) + timedelta(minutes=50)


@pytest.mark.parametrize("refused_first", [True, False])
def test_an_unblock_beside_a_claim_that_is_being_refused(crawl, pair, refused_first):
    """A queue that is put off while its slot is unblocked does not stay so."""
    claimer, person = pair
    crawl.work("A")
    limits_report.block(crawl.connection, SLOT, for_=HOUR)
    crawl.connection.commit()

    def refused(connection):
        return claim(crawl, connection)

    if refused_first:
        assert claimer.run(refused) == []
        unblocked = person.start(limits_report.unblock, SLOT)
        person.until_blocked()
        claimer.commit()
        unblocked.result()
        person.commit()
    else:
        person.run(limits_report.unblock, SLOT)
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
        lambda c: limits_report.block(c, SLOT, for_=HOUR),
        lambda c: limits_report.unblock(c, SLOT),
        lambda c: limits_report.set_delay(c, SLOT, 2),
        lambda c: limits_report.set_delay(c, SLOT, None),
        lambda c: limits_report.set_limit(c, SLOT, RateLimit(concurrency=2)),
    ):
        with engine.begin() as connection:
            change(connection)

        assert news() == {f"worker {crawl.worker}", str(crawl.id), str(films.id)}

    with engine.begin() as connection:
        limits_report.unblock(connection, SLOT)
        limits_report.set_delay(connection, SLOT, None)

    assert news() == set()


def test_a_set_limit_reaches_the_crawls_that_keep_to_it(crawl, engine, news):
    """Workers of a crawl hear of its task's limit, and those of another do not."""
    declare(crawl, a_limit())
    film_crawl(crawl)
    crawl.connection.commit()
    news()

    with engine.begin() as connection:
        changed = limits_report.set_limit(connection, "task:shop/parse", "1/s")

    assert changed.limit.gap == 1.0
    assert news() == {str(crawl.id)}


def test_a_set_delay_does_not_undercut_the_settings(connection):
    """A slot keeps the longer of what was set and what its last holder's settings say."""
    crawl = Crawl.of(connection)
    crawl.work("A")
    hold(crawl, terms=Terms(gap=2.0))

    assert limits_report.set_delay(connection, SLOT, 0.5).limit.gap == 2.0
    assert limits_report.set_delay(connection, SLOT, 9).limit.gap == 9.0
    assert hold(crawl, terms=Terms(gap=2.0)).terms.gap == 9.0
    assert limits_report.set_delay(connection, SLOT, None).limit.set_gap is None
    assert hold(crawl, terms=Terms(gap=2.0)).terms.gap == 2.0


def test_the_delay_that_is_meant_is_shown_beside_the_least_gap(connection):
    """Scrapy's jitter makes gaps of half the DOWNLOAD_DELAY, which is what is shown."""
    crawl = Crawl.of(connection)
    crawl.work("A")

    hold(crawl, terms=Terms(gap=2.0, delay=4.0))

    assert (shown(connection).gap, shown(connection).delay) == (2.0, 4.0)
    slower = limits_report.set_delay(connection, SLOT, 3).limit
    assert (slower.gap, slower.delay) == (3.0, 4.0)
    hold(crawl, terms=Terms(gap=2.0, delay=4.0))
    assert limits_report.set_delay(connection, SLOT, 9).limit.delay == 9.0
    hold(crawl, terms=Terms(gap=2.0, delay=4.0))
    limits_report.set_delay(connection, SLOT, None)
    hold(crawl, terms=Terms(gap=2.0, delay=4.0))
    assert (shown(connection).gap, shown(connection).delay) == (2.0, 4.0)


def test_a_delay_that_was_taken_back_is_kept_no_more(connection):
    """What was kept because it was set is not taken for what the settings say."""
    crawl = Crawl.of(connection)
    crawl.work("A")
    limits_report.set_delay(connection, SLOT, 9)
    hold(crawl, terms=Terms(gap=2.0))
    holdings.release_all(connection, crawl.worker, [])

    assert limits_report.set_delay(connection, SLOT, 5).limit.gap == 5.0
    assert limits_report.set_delay(connection, SLOT, None).limit.gap == 0.0


def test_a_set_delay_wins_over_robots_txt(connection):
    """A person's delay is kept in place of Crawl-delay, which comes back when it is taken back."""
    crawl = Crawl.of(connection)
    crawl.work("A")
    holdings.save_feedback(connection, crawl.worker, [SlotFeedback(slot=SLOT, crawl_delay=20.0)])

    assert shown(connection).gap == 20.0
    assert limits_report.set_delay(connection, SLOT, 5).limit.gap == 5.0
    assert limits_report.set_delay(connection, SLOT, None).limit.gap == 20.0


def test_a_set_limit_takes_the_place_of_the_code(connection):
    """Rate and concurrency are set apart from each other; what is left out is as declared."""
    crawl = Crawl.of(connection)
    (number,) = declare(crawl, a_limit(concurrency=4)).values()

    def terms():
        use = Use(limit_id=number, terms=Terms(gap=10.0, concurrency=4))
        return holdings.acquire(connection, crawl.worker, [use])[number].terms

    limits_report.set_limit(connection, "task:shop/parse", "5/s")
    assert terms() == Terms(gap=0.2, concurrency=4)
    limits_report.set_limit(connection, "task:shop/parse", RateLimit(concurrency=9))
    assert terms() == Terms(gap=10.0, concurrency=9)
    limits_report.set_limit(connection, "task:shop/parse", RateLimit("5/s", concurrency=1))
    assert terms() == Terms(gap=0.2, concurrency=1)
    limits_report.set_limit(connection, "task:shop/parse", None)
    assert terms() == Terms(gap=10.0, concurrency=4)


# What is refused


@pytest.mark.parametrize("seconds", [0, -1, 86_401, 31_536_000, float("nan"), True, "2"])
def test_a_delay_that_cannot_be(connection, seconds):
    """A delay is above zero and at most a day."""
    with pytest.raises(OperationError, match=r"at most 86,400 \(a day\)"):
        limits_report.set_delay(connection, SLOT, seconds)

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
        limits_report.block(connection, SLOT, **given)

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
        limits_report.unblock(connection, name)
    with pytest.raises(error, match=said):
        limits_report.set_delay(connection, name, None)


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
        limits_report.set_limit(connection, name, "1/s")


@pytest.mark.parametrize("rate", ["fast", "0/s", "-1/s", "1/2d", "1", 5])
def test_a_rate_that_is_none(connection, rate):
    """What is no rate is refused."""
    with pytest.raises(OperationError, match="such as"):
        limits_report.set_limit(connection, SLOT, rate)


@pytest.mark.parametrize(
    "written",
    ["a.example", "https://a.example/page?x=1", "A.Example", "a.example:8080", "slot:a.example"],
)
def test_a_slot_is_known_by_its_host(connection, written):
    """A slot may be named by a page's URL, or a host in other letters or with a port."""
    Crawl.of(connection).work("A")

    changed = limits_report.block(connection, written, for_=HOUR)

    assert (changed.limit.name, changed.is_new) == (SLOT, False)


def test_a_slot_that_no_work_names_yet(connection):
    """A slot can be blocked ahead of its work; it is said to be new, and what it resembles."""
    crawl = Crawl.of(connection)
    crawl.work("A")

    changed = limits_report.block(connection, "http://B.Example/", for_=HOUR)
    typo = limits_report.set_delay(connection, "a.exmple", 2)
    again = limits_report.set_delay(connection, "a.exmple", 3)
    crawl.work("B", data={"url": "http://b.example/1"})

    assert (changed.limit.name, changed.is_new) == ("b.example", True)
    assert (typo.is_new, typo.hint) == (True, "; did you mean 'a.example'?")
    assert not again.is_new
    assert claim(crawl) == ["A"]


# What a run makes of it


def test_a_run_leaves_what_a_person_blocked(connection):
    """Work of a slot that a person blocked is not waited for, in whatever state it is."""
    crawl = Crawl.of(connection)
    crawl.work("A")
    crawl.end(crawl.claimed("B"), outcome=Outcome.RETRY, delay=HOUR)
    crawl.end(crawl.claimed("C"), outcome=Outcome.RETRY, delay=timedelta(seconds=-1))
    crawl.work("D")
    crawl.connection.execute(
        sa.text(
            f"UPDATE work SET deaths = 2 WHERE worker_id IS NULL AND item_id = {crawl.item_id('D')}"
        )
    )
    assert remaining(crawl).claimable
    assert remaining(crawl).next_retry is not None

    limits_report.block(connection, SLOT, for_=HOUR)

    assert remaining(crawl).is_over

    crawl.work("E", data={"url": "http://b.example/"})

    assert remaining(crawl).claimable


def test_a_run_waits_for_what_a_site_blocked(connection):
    """A block that a site asked for passes: the run goes on then."""
    crawl = Crawl.of(connection)
    crawl.work("A")

    holdings.save_feedback(
        connection, crawl.worker, [SlotFeedback(slot=SLOT, blocked_for=9.0, blocked_by="503")]
    )

    assert remaining(crawl).claimable
    assert status.summary(connection, crawl.id).waiting


def test_a_summary_counts_blocked_work_apart(connection):
    """Work of a slot that a person blocked is not said to be waiting, and is counted once."""
    crawl = Crawl.of(connection, parse={"tags": ["page"]}, price={"tags": ["page"]})
    crawl.work("A")
    crawl.work("B")
    crawl.work("C", data={"url": "http://b.example/"})
    crawl.connection.execute(
        sa.text("UPDATE work SET deaths = 2 WHERE item_id = :item"), {"item": crawl.item_id("B")}
    )
    crawl.connection.execute(sa.text("UPDATE tasks SET is_enabled = false WHERE name = 'price'"))
    limits_report.block(connection, SLOT, for_=HOUR)

    summary = status.summary(connection, crawl.id)

    assert (summary.waiting, summary.disabled, summary.blocked) == (1, 3, 2)
    assert summary.lines()[-1] == (
        "left: 1 waiting; 3 of disabled tasks (scrapy itemgraph enable TASK); "
        "2 of blocked slots (scrapy itemgraph unblock SLOT)"
    )

    limits_report.block(connection, "b.example", for_=HOUR)

    assert status.summary(connection, crawl.id).waiting == 0


# Why work does not go now


def test_a_blocked_slot_is_explained(connection):
    """Blocked work says until when, by whom, and what would end it."""
    crawl = Crawl.of(connection)
    crawl.work("A")
    limits_report.block(connection, SLOT, until=datetime(2100, 1, 1, tzinfo=UTC))

    blocked = why(crawl)
    connection.execute(sa.text("UPDATE limits SET blocked_by = '429'"))

    assert not blocked.is_eligible
    assert blocked.reasons == (
        (
            "the slot 'a.example' is blocked until 2100-01-01 00:00:00 UTC by a person; "
            "scrapy itemgraph unblock a.example"
        ),
    )
    assert "by the site (429)" in why(crawl).reasons[0]


def test_a_slot_of_another_crawl_is_explained(connection):
    """Work waits for a worker of another crawl that has its slot, and not for one of its own."""
    crawl = Crawl.of(connection)
    crawl.work("A")
    films = film_crawl(crawl)
    hold(crawl)

    of_films, own = why(films, "F"), why(crawl)

    assert of_films.reasons == (
        (
            f"worker {crawl.worker} of the crawl 'books' (process 1 on here) has the slot "
            "'a.example' for itself, until it gives way or has no work of it"
        ),
    )
    assert own.is_eligible
    assert own.reasons[1].endswith(
        "has the slot 'a.example' for itself, and is the one to start it"
    )


def test_the_next_start_is_explained(connection):
    """Work says how long the delay of its slot still takes."""
    crawl = Crawl.of(connection)
    crawl.work("A")
    hold(crawl, terms=Terms(gap=600.0))
    used(crawl, ago=300.0)

    (reason,) = why(crawl).reasons

    assert reason in {
        f"the next start in the slot 'a.example' is due in {left}: one every 10m"
        for left in ("5m", "4m 59s", "4m 58s")
    }


def test_limits_that_others_use_up_are_explained(connection):
    """Work says which limit of its task, or of its tags, is held or used up by others."""
    crawl = Crawl.of(connection)
    crawl.work("A", tags=("page", "slow"))
    films = film_crawl(crawl)
    of_tags = a_limit(limits.TAGS, "shop/parse:slow", None, 2, tags=("slow",))
    numbers = declare(crawl, a_limit(), of_tags)
    task, tags = (numbers["task", "shop/parse"], numbers["tags", "shop/parse:slow"])
    holdings.acquire(
        connection,
        films.worker,
        [
            Use(limit_id=task, terms=Terms(gap=10.0)),
            Use(limit_id=tags, terms=Terms(concurrency=2), wants=2),
        ],
    )

    found = why(crawl)

    assert not found.is_eligible
    who = f"worker {films.worker} of the crawl 'films' (process 1 on here)"
    until = "until it gives way or has no work of it"
    assert found.reasons == (
        f"the limit 'tags:shop/parse:slow' is used up: 2 at once, by {who}: 2",
        f"{who} has the limit 'task:shop/parse' for itself, {until}",
    )


def test_what_a_dead_worker_had_is_explained(connection):
    """A slot whose holder died says when it is free."""
    crawl = Crawl.of(connection)
    crawl.work("A")
    dead = crawl.new_worker(LEASE)
    hold(crawl, terms=Terms(gap=600.0), worker=dead)
    holdings.outlive(connection, [dead])
    workers.stop(connection, dead, "died")

    (reason,) = why(crawl).reasons

    assert "is free in" in reason
    assert reason.endswith("died, and its requests may still run")
    ((holder,), _) = (shown(connection).holders, None)
    assert holder.free_at is not None


# The door and the command line


def test_the_door(database, crawl):
    """`ItemGraph` shows and changes limits, for all crawls or one."""
    crawl.work("A")
    film_crawl(crawl)
    declare(crawl, a_limit())
    crawl.connection.commit()

    with ItemGraph.open(database, "films") as graph:
        assert [one.name for one in graph.slots()] == ["task:shop/parse", SLOT]
        assert [(one.name, one.work) for one in graph.slots(of_crawl=True)] == [(SLOT, 1)]
        assert graph.block(SLOT, for_=HOUR).limit.blocked_by == "person"
        assert graph.set_delay(SLOT, 2).limit.gap == 2.0
        assert graph.set_limit("task:shop/parse", "1/s").limit.set_gap == 1.0
        assert graph.unblock(SLOT).is_changed
        with pytest.raises(NotFoundError):
            graph.unblock("b.example")


def test_slots(scrapy, crawl):
    """`slots` shows limits and slots in two tables, and all of it in JSON."""
    crawl.work("A")
    hold(crawl)
    declare(crawl, a_limit(gap=0.1, concurrency=2))
    limits_report.block(crawl.connection, SLOT, until=datetime(2100, 1, 1, tzinfo=UTC))
    limits_report.set_delay(crawl.connection, SLOT, 90)

    human, document = scrapy("slots"), scrapy("slots", "--json").document

    assert human.code == 0
    named, of_slots = human.out.split("\n\n")
    assert named.splitlines() == [
        "LIMIT            DELAY  AT ONCE",
        "task:shop/parse  0.1s         2",
    ]
    assert of_slots.splitlines() == [
        "SLOT       WORK  DELAY   HELD BY  BLOCKED UNTIL         BY      KNOWN",
        "a.example     1  1m 30s  1        2100-01-01 00:00:00Z  person  set 1m 30s",
    ]
    assert [one["name"] for one in document] == ["task:shop/parse", SLOT]
    assert set(document[1]) == set(asdict(shown(crawl.connection)))
    assert document[1]["holders"][0]["worker"] == crawl.worker


def test_slots_of_a_crawl_and_few(scrapy, crawl):
    """`slots --crawl` leaves out other crawls' slots, --limit all but the first."""
    for name in ("b.example", "c.example"):
        crawl.work(name, data={"url": f"http://{name}/"})
    film_crawl(crawl)

    of_films = scrapy("slots", "--crawl", "films", "--json").document
    first = scrapy("slots", "--limit", "2").out

    assert [one["name"] for one in of_films] == [SLOT]
    assert len(first.splitlines()) == 4
    assert first.endswith("(the first 2 slots; --limit shows more)\n")
    assert scrapy("slots", "--crawl", "flims").code == 1


def test_slots_shows_what_is_meant_and_where_counting_ended(scrapy, crawl, monkeypatch):
    """DELAY is the DOWNLOAD_DELAY and not the least that jitter makes of it; WORK ends with a +."""
    for name in "ABC":
        crawl.work(name)
    crawl.work("D", data={"url": "http://b.example/"})
    hold(crawl, terms=Terms(gap=2.0, delay=4.0))
    monkeypatch.setattr(status, "MANY", 2)

    human, document = scrapy("slots").out, scrapy("slots", "--json").document

    assert human.splitlines()[1].split() == [SLOT, "2+", "4s", str(crawl.worker)]
    assert human.splitlines()[2].split() == ["b.example", "1"]
    assert [(one["work"], one["is_counted"]) for one in document] == [(2, False), (1, True)]
    assert (document[0]["gap"], document[0]["delay"]) == (2.0, 4.0)


def test_no_slots(scrapy, crawl):
    """Where there is nothing to show, that is said."""
    assert scrapy("slots").out == "no slot has work, and nothing was set or learned of one\n"
    assert scrapy("slots", "--json").document == []


def test_block_and_unblock(scrapy, crawl):
    """`block` says until when, `unblock` whether there was a block."""
    crawl.work("A")

    blocked = scrapy("block", "http://a.example/1", "--until", "2100-01-01")
    longer = scrapy("block", SLOT, "--for", "2h", "--json")
    ended, none = scrapy("unblock", SLOT), scrapy("unblock", SLOT, "--json")

    assert blocked.out == "a.example is blocked until 2100-01-01 00:00:00Z\n"
    assert longer.document["blocked_by"] == "person"
    assert (longer.document["is_new"], longer.document["is_changed"]) == (False, True)
    assert ended.out == "a.example is not blocked any more\n"
    assert none.code == 0
    assert none.document["is_changed"] is False
    assert scrapy("unblock", SLOT).out == "a.example was not blocked\n"


def test_a_new_slot_is_said_to_be_new(scrapy, crawl):
    """A slip of the pen in a slot's name shows."""
    crawl.work("A")

    ran = scrapy("block", "a.exmple", "--for", "1h")

    assert ran.code == 0
    assert ran.out.splitlines()[1] == (
        "new: no work names this slot yet; did you mean 'a.example'?"
    )


def test_set_delay(scrapy, crawl):
    """`set-delay` says what is kept, also where the settings or robots.txt ask for more."""
    crawl.work("A")
    hold(crawl, terms=Terms(gap=2.0))

    more = scrapy("set-delay", SLOT, "1m")
    less = scrapy("set-delay", SLOT, "0.5")
    none = scrapy("set-delay", SLOT, "none", "--json")
    crawl.connection.execute(sa.text("UPDATE limits SET crawl_delay = 20"))

    assert more.out == "a.example keeps a delay of 1m\n"
    assert less.out == (
        "a.example keeps a delay of 2s, which the settings ask for, and which is more than 0.5s\n"
    )
    assert (none.document["set_gap"], none.document["gap"]) == (None, 2.0)
    assert scrapy("set-delay", SLOT, "none").out == (
        "a.example keeps the delay of the settings, and at least the 20s of its robots.txt\n"
    )


def test_set_limit(scrapy, crawl):
    """`set-limit` sets a rate, a concurrency or both, and takes them back."""
    crawl.work("A")
    declare(crawl, a_limit())

    both = scrapy("set-limit", "task:shop/parse", "5/s", "--concurrency", "2")
    one = scrapy("set-limit", "task:shop/parse", "none", "--concurrency", "3", "--json")
    none = scrapy("set-limit", "task:shop/parse", "none")
    slot = scrapy("set-limit", SLOT, "1/2s", "--concurrency", "2")

    assert both.out == "task:shop/parse: 5/s, 2 at once\n"
    assert (one.document["set_gap"], one.document["set_concurrency"]) == (None, 3)
    assert none.out == "task:shop/parse is as the code says\n"
    assert slot.out == "a.example: 1/2s, 2 at once; it keeps a delay of 2s and 2 at once\n"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["block", SLOT], 2, "give one of --until TIME and --for PERIOD"),
        (["block", SLOT, "--for", "1h", "--until", "2100-01-01"], 2, "give one of"),
        (["block", SLOT, "--for", "soon"], 2, "write a timedelta"),
        (["block", SLOT, "--until", "soon"], 2, "is no moment"),
        (["block", SLOT, "--until", "2020-01-01"], 1, "is past"),
        (["block", SLOT, "--until", "2300-01-01"], 1, "hundred years"),
        (["block", SLOT, "--for", "1h", "--crawl", "books"], 2, "leave --crawl out"),
        (["block", "task:shop/parse", "--for", "1h"], 1, "is no slot"),
        (["block", "file:///x", "--for", "1h"], 1, "has no host"),
        (["unblock"], 2, "required: SLOT"),
        (["unblock", "b.example"], 1, "ever named the slot 'b.example'"),
        (["set-delay", SLOT], 2, "required: SECONDS"),
        (["set-delay", SLOT, "0"], 2, "above 0"),
        (["set-delay", SLOT, "nan"], 2, '"none"'),
        (["set-delay", SLOT, "-5"], 2, "unknown option -5"),
        (["set-delay", SLOT, "slow"], 2, '"none"'),
        (["set-delay", SLOT, "365d"], 1, "at most 86,400 (a day)"),
        (["set-limit", SLOT, "fast"], 2, '"30/min"'),
        (["set-limit", SLOT, "0/s"], 2, "above zero"),
        (["set-limit", SLOT, "none", "--concurrency", "0"], 2, "whole number from 1"),
        (["set-limit", "global", "1/s"], 1, "there is none yet"),
        (["slots", "--limit", "0"], 2, "whole number from 1"),
    ],
)
def test_what_is_refused(scrapy, crawl, arguments, code, said):
    """What cannot be done is said in a line, changes nothing, and has its exit code."""
    crawl.work("A")

    ran = scrapy(*arguments)

    assert ran.code == code
    assert ran.out == ""
    assert said in ran.err
    assert "Traceback" not in ran.err
    assert [one["name"] for one in scrapy("slots", "--json").document] == [SLOT]
