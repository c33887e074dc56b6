"""URLs that spiders and people make in a crawl with a frontier: they are the frontier's, too."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from support import frontiers, races
from support.frontiers import OK, SKIPPED, url
from support.races import ended
from support.statements import name_of

from scrapy_itemgraph import task
from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.graph.frontier_controls import FrontierControls
from scrapy_itemgraph.graph.frontier_deletions import FrontierDeletions
from scrapy_itemgraph.graph.frontier_listings import FrontierListings
from scrapy_itemgraph.model.operations import (
    AddTag,
    CreateAlias,
    CreateItem,
    DeleteAlias,
    DeleteItem,
    MergeItem,
    RemoveTag,
    RenameItem,
    StoreResult,
    UpdateData,
)
from scrapy_itemgraph.model.work import ErrorRecord, Outcome
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.store.registry import duties

pytestmark = pytest.mark.server

CRAWL = "DEFAULT"
A, B = "http://a.example/", "http://b.example/"
ERROR = ErrorRecord(type="ValueError", message="no title")


class Fetching:
    @task(name="fetch", tags=["url"])
    def fetch(self, response, item): ...


class FetchingForADay:
    @task(name="fetch", tags=["url"], ttl="1d")
    def fetch(self, response, item): ...


class Reading:
    @task(tags=["url", "book"])
    def read(self, response, item): ...


@pytest.fixture
def server(engine):
    """Yield a frontier on a database of its own."""
    with frontiers.opened(engine) as one:
        yield one


@pytest.fixture
def crawl(engine):
    """Return the crawl of a spider that fetches URLs, and of the frontier."""
    return races.Crawl(engine, Fetching, CRAWL)


def page(address, **data):
    """Return what makes a URL's item."""
    return CreateItem(f"URL:{address}", tags=["url"], data={"url": address, **data})


def listed(server, key=None):
    """Return the URLs that a list has, sorted."""
    parts = FrontierListings(server.transactions)

    async def read():
        found = parts.urls(CRAWL, key, start=0, size=1000)
        return sorted([one.url async for some in found for one in some])

    return server.run(read())


def stats(server, key=None):
    """Return how many URLs there are to fetch, in process and completed, and how many queues."""
    one = server.run(FrontierListings(server.transactions).stats(CRAWL, key))
    return one.size, one.in_process, one.completed, one.queues


def limit(server, key, number):
    """Set how many URLs of a queue are fetched."""
    server.run(FrontierControls(server.transactions, server.own).set_limit(CRAWL, key, number))


def counted(server):
    """Return how many URLs are completed of queues that have a limit, by their keys."""
    found = {key: done for key, most, done in server.rows(frontiers.QUEUES, crawl=CRAWL) if most}
    server.assert_is_true()
    return found


def do_all(server, crawl, *changesets, worker=None):
    """Commit changesets, as a worker does."""
    with server.engine.begin() as connection:
        return crawl.apply(connection, *changesets, worker=worker)


def test_what_a_spider_makes_in_a_crawl_with_a_frontier_is_handed_out(server, crawl):
    """UF-13: its queue is made with it, and lists and numbers have it, too."""
    server.put(url(A + "1"))
    crawl.seed(page(A + "2"), page(B + "1"))
    server.assert_is_true()
    assert sorted(server.get()) == [A + "1", A + "2", B + "1"]
    assert listed(server) == [A + "1", A + "2", B + "1"]
    assert listed(server, "b.example") == [B + "1"]
    assert stats(server) == (3, 3, 0, 2)
    assert server.put(url(B + "1")) == [SKIPPED]


def test_what_was_made_before_the_frontier_becomes_its_own_by_a_sweep(server, crawl):
    """UF-13: any process does it, step by step, and goes on where one was killed."""
    crawl.seed(*(page(f"{A}{number}") for number in range(230)))
    crawl.seed(CreateItem("BOOK:1", tags=["book"], data={"url": A + "book"}))
    assert server.put(url(B + "1")) == [OK]
    crawl.seed(page(B + "2"))  # what comes later waits for no sweep
    assert sorted(server.get()) == [B + "1", B + "2"]
    done = duties.Round()
    for _ in range(2):
        with server.engine.begin() as connection:
            assert duties.attend(connection, done)
    assert server.rows("SELECT swept FROM sweeps") == [(200,)]
    assert len(server.get(key="a.example")) == 200
    while server.rows("SELECT FROM sweeps"):
        with server.engine.begin() as connection:
            duties.attend(connection, done)
    server.assert_is_true()
    server.pass_seconds(2)
    assert len(server.get()) == 30
    assert len(listed(server)) == 232


def test_a_spider_without_such_a_task_feeds_the_frontier(server, engine):
    """UF-13: what it made before is to be fetched from now on, as it has the tag."""
    crawl = races.Crawl(engine, Reading, CRAWL)
    crawl.seed(page(A + "1"))
    server.put(url(B + "1"))
    crawl.sweep()
    crawl.seed(page(A + "2"))
    server.assert_is_true()
    assert sorted(server.get()) == [A + "1", A + "2", B + "1"]


def test_what_people_add_is_handed_out(server, database):
    """UF-13: one by one, and many at once without a look at what is there."""
    server.put(url(A + "1"))
    with ItemGraph.open(database, crawl=CRAWL) as graph:
        graph.apply([page(A + "2"), page(B + "1"), CreateItem("x", tags=["other"])])
        graph.apply([AddTag("other", id="x"), page(B + "2")])
    server.assert_is_true()
    assert sorted(server.get()) == [A + "1", A + "2", B + "1", B + "2"]


def test_a_tag_makes_an_item_a_url_and_without_it_it_is_none(server, crawl):
    """UF-13: also a tag that it gets later, and one that is renamed."""
    server.put(url(A + "1"))
    crawl.seed(CreateItem(f"URL:{B}1", tags=["later"], data={"url": B + "1"}))
    assert listed(server) == [A + "1"]
    crawl.seed(AddTag("url", id=f"URL:{B}1"), RemoveTag("url", id=f"URL:{A}1"))
    server.assert_is_true()
    assert listed(server) == server.get() == [B + "1"]
    assert server.put(url(A + "1", 5)) == [OK]
    server.assert_is_true()
    assert listed(server) == [A + "1", B + "1"]
    with server.engine.begin() as connection:
        engines.hot_path(connection)
        races.item_sweeps.rename_tags(connection, {"url": "page"})
    crawl.sweep()
    server.assert_is_true()
    assert listed(server) == []


def test_an_item_that_no_answer_could_name_is_the_spiders_alone(server, crawl):
    """UF-13: a crawler says what became of a URL by the URL; another name gives it that."""
    server.put(url(B + "1"))
    crawl.seed(
        CreateItem("BOOK:1", tags=["url"], data={"url": A + "1"}),
        CreateItem("URL:nowhere", tags=["url"], data={"url": "nowhere"}),
        CreateItem(f"URL:{A}2", tags=["url"], data={"n": 1}),
    )
    server.assert_is_true()
    assert server.get() == listed(server) == [B + "1"]
    crawl.seed(CreateAlias(f"URL:{A}1", to="BOOK:1"))
    server.assert_is_true()
    assert server.get() == [A + "1"]
    assert server.put(url(A + "1", 0)) == [OK]
    assert server.rows("SELECT count(*) FROM items") == [(4,)]
    crawl.seed(DeleteAlias(f"URL:{A}1"))
    assert listed(server) == [B + "1"]


def test_a_renamed_url_stays_one(server, crawl):
    """UF-13: its old name is another name of the item, by which crawlers know it."""
    server.put(url(A + "1"))
    crawl.seed(RenameItem("BOOK:1", id=f"URL:{A}1"))
    server.assert_is_true()
    assert server.get() == listed(server) == [A + "1"]
    assert server.put(url(A + "1", 0), url(A + "1")) == [OK, SKIPPED]
    assert stats(server) == (0, 0, 1, 1)


def test_a_slot_that_a_spider_names_is_the_key(server, crawl):
    """UF-13: crawlers answer with it, and then the URL is the same; without it, it moves."""
    server.put(url(B + "1"))
    crawl.seed(page(A + "1", download_slot="slow"), page(A + "2", download_slot="slow", n=1))
    server.assert_is_true()
    assert sorted(server.get(key="slow")) == [A + "1", A + "2"]
    assert server.put(url(A + "1", 0, "slow"), url(A + "1", None, "slow")) == [OK, SKIPPED]
    assert server.put(url(A + "1", None, "other"), url(A + "2", 9)) == [OK, OK]
    server.assert_is_true()
    assert (listed(server, "slow"), listed(server, "a.example")) == ([A + "1"], [A + "2"])
    parts = FrontierListings(server.transactions)
    assert server.run(parts.url(CRAWL, "slow", A + "1")).refetchable_from == 0
    assert server.run(parts.url(CRAWL, "slow", A + "2")) is None
    assert server.rows("SELECT data ->> 'n' FROM items WHERE data ->> 'n' IS NOT NULL") == [("1",)]


def test_data_that_name_another_slot_move_a_url_to_its_queue(server, crawl):
    """UF-9, UF-12: with its hold and its place in what is counted."""
    server.put(url(A + "1"), url(A + "2"), url(B + "1"))
    limit(server, "a.example", 5)
    limit(server, "b.example", 5)
    server.get(hold=100)
    server.put(url(A + "1", 0))
    assert counted(server) == {"a.example": 1, "b.example": 0}
    crawl.seed(
        UpdateData({"download_slot": "b.example"}, id=f"URL:{A}1"),
        UpdateData({"download_slot": "c.example"}, id=f"URL:{A}2"),
    )
    assert counted(server) == {"a.example": 0, "b.example": 1}
    assert listed(server, "a.example") == []
    assert stats(server, "c.example") == (1, 1, 0, 1)
    server.put(url(A + "1", 7, "b.example"))
    assert counted(server) == {"a.example": 0, "b.example": 0}


def test_what_a_spider_completes_counts_for_a_limit(server, crawl):
    """UF-12: and at the limit nothing is handed out; a failure completes nothing."""
    server.put(*(url(f"{A}{number}") for number in range(5)))
    limit(server, "a.example", 3)
    worker = crawl.worker()
    first, second, third = crawl.claimed(worker, 3)
    do_all(server, crawl, ended(first), ended(second, page(A + "new")), worker=worker)
    assert counted(server) == {"a.example": 2}
    failed = ended(third, outcome=Outcome.FAILED, error=ERROR)
    do_all(server, crawl, failed, worker=worker)
    assert counted(server) == {"a.example": 2}
    with server.engine.begin() as connection:
        done = StoreResult({}, id=f"URL:{A}new", task="fetch")
        crawl.operate(connection, done)
    assert counted(server) == {"a.example": 3}
    server.pass_seconds(5)
    assert server.get() == []
    limit(server, "a.example", 4)
    assert len(server.get()) == 2


def test_items_that_are_merged_and_deleted_leave_the_count(server, crawl):
    """UF-12: of two completed URLs that are one thing, one counts, and of a deleted one none."""
    server.put(*(url(f"{A}{number}", 0) for number in range(4)), url(B + "1"))
    limit(server, "a.example", 9)
    limit(server, "b.example", 9)
    assert counted(server) == {"a.example": 4, "b.example": 0}
    crawl.seed(MergeItem(f"URL:{A}1", id=f"URL:{A}0"))
    assert counted(server) == {"a.example": 3, "b.example": 0}
    crawl.seed(DeleteItem(f"URL:{A}2"), RemoveTag("url", id=f"URL:{A}3"))
    assert counted(server) == {"a.example": 1, "b.example": 0}
    crawl.seed(MergeItem(f"URL:{B}1", id=f"URL:{A}1", merge=lambda into, _: into))
    assert counted(server) == {"a.example": 0, "b.example": 1}
    assert listed(server) == [B + "1"]
    assert server.put(url(A + "0", 3), url(A + "3", 0)) == [OK, OK]
    assert counted(server) == {"a.example": 1, "b.example": 0}


def test_answers_for_two_names_of_an_item_are_one(server, crawl):
    """UF-5: the last of them counts."""
    server.put(url(A + "1"), url(A + "2"), url(B + "1"))
    crawl.seed(MergeItem(f"URL:{A}1", id=f"URL:{A}2"))
    told = server.put(url(A + "1", 0), url(A + "2", 77), url(B + "1", 0))
    assert told == [OK, OK, OK]
    assert server.rows("SELECT nice FROM work") == [(77,)]
    server.assert_is_true()


def test_a_url_that_failed_in_a_spider_waits_for_a_person_or_an_answer(server, crawl):
    """UF-5: it is held, and not handed out; what a crawler knows of it handles the failure."""
    server.put(url(A + "1"), url(A + "2"))
    worker = crawl.worker()
    claims = crawl.claimed(worker, 2)
    failed = [ended(one, outcome=Outcome.FAILED, error=ERROR) for one in claims]
    do_all(server, crawl, *failed, worker=worker)
    assert server.get() == []
    assert stats(server) == (2, 0, 0, 1)
    assert server.put(url(A + "1")) == [SKIPPED]
    assert server.get() == []
    assert server.put(url(A + "1", 9), url(A + "2", 0)) == [OK, OK]
    server.assert_is_true()
    assert server.get() == [A + "1"]
    handled = server.rows("SELECT handled_by FROM failures")
    assert handled == [("urlfrontier",)] * 2


def test_a_claim_hides_from_crawlers_and_a_hold_from_claims(server, crawl):
    """UF-13: each URL is with one of them; a hold that is over counts as a try."""
    server.put(url(A + "1"), url(B + "1"))
    worker = crawl.worker()
    (claim,) = crawl.claimed(worker, 1)
    (handed,) = server.get(hold=50)
    assert {claim.item.data["url"], handed} == {A + "1", B + "1"}
    assert crawl.claimed(worker) == []
    assert server.get() == []
    server.pass_seconds(51)
    with server.engine.begin() as connection:
        races.engines.hot_path(connection)
        assert races.item_sweeps.sweep(connection, crawl.id) is False
        assert duties.timers.stage_timers(connection, crawl.id) == 1
    (again,) = crawl.claimed(worker)
    assert again.item.data["url"] == handed
    assert again.attempt == 2


def test_an_answer_for_what_a_spider_fetches_leaves_its_claim_alone(server, crawl):
    """UF-5: the URL is completed once, and its count is right whoever is later."""
    server.put(url(A + "1"))
    limit(server, "a.example", 9)
    worker = crawl.worker()
    (claim,) = crawl.claimed(worker)
    assert server.put(url(A + "1", 0)) == [OK]
    assert counted(server) == {"a.example": 1}
    (applied,) = do_all(server, crawl, ended(claim), worker=worker)
    assert applied.outcome is Outcome.OK
    assert counted(server) == {"a.example": 1}
    assert stats(server) == (0, 0, 1, 1)


def test_a_result_that_expires_makes_a_url_to_be_fetched_again(server, engine):
    """UF-13: what a spider with a time to live fetched comes back; an answer of 0 lasts."""
    crawl = races.Crawl(engine, FetchingForADay, CRAWL)
    server.put(url(A + "1"), url(A + "2"))
    worker = crawl.worker()
    (claim, _) = crawl.claimed(worker)
    (applied,) = do_all(server, crawl, ended(claim), worker=worker)
    assert applied.outcome is Outcome.OK
    server.put(url(B + "1", 0))
    server.change("UPDATE results SET due_at = now(), expires_at = now() WHERE due_at IS NOT NULL")
    with server.engine.begin() as connection:
        races.engines.hot_path(connection)
        now = connection.scalar(sa.text("SELECT now() + interval '1 s'"))
        assert duties.expired_results.stage_results(connection, crawl.id, now) == 1
    limit(server, "a.example", 9)
    assert stats(server, "a.example") == (2, 0, 1, 1)
    assert server.get() == [claim.item.data["url"]]
    server.assert_is_true()


def test_a_task_that_its_spider_drops_is_the_frontiers_again(server, crawl):
    """UF-13: crawlers go on; what the spider has fetched stays so."""
    server.put(url(A + "1"), url(B + "1"))
    worker = crawl.worker()
    (claim, _) = crawl.claimed(worker, 2)
    do_all(server, crawl, ended(claim), worker=worker)
    crawl.register(Reading)
    assert server.rows("SELECT spider, is_registered FROM tasks WHERE name = 'fetch'") == [
        ("urlfrontier", True)
    ]
    crawl.seed(page(A + "2"))
    server.assert_is_true()
    assert A + "2" in server.get()
    assert claim.item.data["url"] not in server.get(key=claim.item.data["url"].split("/")[2])
    crawl.register(Fetching)
    server.assert_is_true()
    assert server.rows("SELECT spider FROM tasks WHERE name = 'fetch'") == [("spider",)]


def test_deletions_leave_what_is_not_the_frontiers(server, crawl):
    """UF-13: a spider's other items stay, and what it makes after that has a queue again."""
    server.put(url(A + "1"))
    crawl.seed(page(A + "2"), CreateItem("BOOK:1", tags=["book"], data={"url": A + "3"}))
    parts = FrontierDeletions(server.transactions, server.own)
    assert server.run(parts.delete_queue(CRAWL, "a.example")) == 2
    assert server.rows("SELECT name FROM items") == [("BOOK:1",)]
    crawl.seed(page(A + "2"))
    server.assert_is_true()
    assert listed(server) == [A + "2"]
    assert server.run(parts.delete_crawl(CRAWL)) == 1
    server.assert_is_true()


def test_a_crawl_without_a_frontier_sends_nothing_more(engine):
    """Commits, additions and sweeps of other crawls neither mark nor count; nor look whether."""
    sent = []

    def note(_connection, _cursor, statement, *_):
        sent.append(name_of(statement))

    plain = races.Crawl(engine, Reading, "plain")
    with frontiers.opened(engine) as server:
        server.put(url(A + "1"))
    shared = races.Crawl(engine, Fetching, CRAWL)
    numbers = {}
    for crawl in (plain, shared):
        worker = crawl.worker()
        crawl.seed(page(B + "1"), page(B + "2"))
        sa.event.listen(engine, "before_cursor_execute", note)
        sent.clear()
        claims = crawl.claimed(worker, 2)
        with engine.begin() as connection:
            crawl.apply(connection, *(ended(one, page(B + "3")) for one in claims), worker=worker)
        sa.event.remove(engine, "before_cursor_execute", note)
        numbers[crawl] = list(sent)
    of_frontiers = ("marks.", "completions.")
    assert not [one for one in numbers[plain] if one.startswith(of_frontiers)]
    more = [one for one in numbers[shared] if one.startswith(of_frontiers)]
    assert more == ["completions.LIMITED", "marks.MARK"]


def test_a_frontier_that_is_loaded_goes_on(server, crawl, database):
    """UF-13: what a spider makes in the loaded crawl is the frontier's, as in the dumped one."""
    server.put(url(A + "1"))
    crawl.seed(page(A + "2"))
    with ItemGraph.open(database, crawl=CRAWL) as graph:
        dumped = list(graph.crawls.dump())
    with ItemGraph.open(database, crawl="copy") as graph:
        graph.crawls.load(dumped)
        graph.apply([page(A + "3")])
    server.assert_is_true("copy")
    assert sorted(server.get("copy")) == [A + "1", A + "2", A + "3"]


class FetchingAndReading:
    @task(name="fetch", tags=["url"])
    def fetch(self, response, item): ...

    @task(tags=["book"])
    def read(self, response, item): ...


def test_what_clients_set_puts_no_spider_off_for_long(server, engine):
    """UF-13: delays and blocks are for crawlers: a worker looks into the queue within seconds."""
    server.put(url(A), url(f"{A}2"))
    crawl = races.Crawl(engine, FetchingAndReading, CRAWL)
    crawl.seed(CreateItem("BOOK:1", tags=["book"], data={"url": f"{A}book"}))
    controls = FrontierControls(server.transactions, server.own)
    server.run(controls.set_delay(CRAWL, "a.example", 500))
    assert server.get(urls_per_queue=1) == [A]
    latest = "SELECT max(next_at) < clock_timestamp() + interval '6 s' FROM queues"
    assert server.rows(latest) == [(True,)]

    server.change("UPDATE queues SET next_at = now()")
    assert server.get(urls_per_queue=1) == []
    assert server.rows(latest) == [(True,)]
    server.change("UPDATE queues SET next_at = now()")
    assert "BOOK:1" in {one.item.id for one in crawl.claimed(crawl.worker())}


def test_metadata_of_a_spider_needs_no_form(server, engine):
    """UF-10: crawlers get of it what is in the form of theirs, and lists can be read."""
    crawl = races.Crawl(engine, Fetching, CRAWL)
    server.put(url(A))
    metadata = {"depth": 3, "title": "xyz", "none": None, "mixed": ["a", 1], "path": ["x"]}
    data = {"url": B, "metadata": metadata, "refetchable_from_date": 10**30}
    crawl.seed(CreateItem(f"URL:{B}", tags=["url"], data=data))

    said = {one.url: one.metadata for one in server.handed()}
    assert said == {A: {}, B: {"mixed": ["a"], "path": ["x"]}}
    listings = FrontierListings(server.transactions)
    one = server.run(listings.url(CRAWL, "b.example", B))
    assert one.refetchable_from == one.created_at
