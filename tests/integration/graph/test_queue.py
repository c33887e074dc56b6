"""The queue of crawls: who is added, steered and ended, and what is written down of it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from scrapy_itemgraph.exceptions import NotFoundError, OperationError
from scrapy_itemgraph.graph.crawl_transactions import CrawlTransactions
from scrapy_itemgraph.graph.parts.queue import Queue
from scrapy_itemgraph.model.crawl_arguments import CrawlStart
from scrapy_itemgraph.model.crawl_states import NewCrawl, State
from scrapy_itemgraph.model.crawl_waits import sentences
from scrapy_itemgraph.store.admin import queue_reports
from scrapy_itemgraph.store.registry import crawl_starts

ME = "ann@desk"


@pytest.fixture
def queue(engine):
    """Return the queue of an empty database."""
    return Queue(CrawlTransactions(engine, None))


def new(name=None, spider="books", **given):
    """Return a crawl that is to be added."""
    terms = {"arguments": {}, "settings": {}, "project": "shop", **given}
    return NewCrawl(spider=spider, name=name, **terms)


def whats(queue, name):
    """Return what happened to a crawl, the oldest first."""
    return [event.what for event in queue.history(name)][::-1]


def test_a_crawl_is_steered_through_its_states_and_each_step_is_written_down(queue):
    """MNB-3: added, paused, resumed, aborted, revived; by whom, why, and in which order."""
    assert queue.add(new(), by=ME) == ("books", [])
    assert queue.change("books", "pause", by="bob@desk", reason="too\nfast") is State.PAUSED
    paused = queue.get("books")
    queue.change("books", "resume", by=ME)
    queue.change("books", "abort", by=ME)
    queue.change("books", "revive", by=ME)

    last = queue.history("books")[3]
    assert whats(queue, "books") == ["added", "paused", "resumed", "aborted", "revived"]
    assert (paused.state, paused.place) == (State.PAUSED, None)
    assert (last.by, last.detail["reason"]) == ("bob@desk", "too\\nfast")
    assert queue.get("books").state is State.ACTIVE


@pytest.mark.parametrize(
    ("before", "change", "said"),
    [
        (["pause"], "pause", "is paused already"),
        (["abort"], "resume", "crawls revive has it go on"),
        (["abort"], "pause", "crawls revive has it go on"),
        (["pause"], "revive", "crawls resume has it go on"),
    ],
)
def test_what_cannot_be_done_in_a_state_says_what_can(queue, before, change, said):
    """A change that does not fit the state is an error, and nothing is changed."""
    queue.add(new(), by=ME)
    for one in before:
        queue.change("books", one, by=ME)
    state = queue.get("books").state

    with pytest.raises(OperationError, match=said):
        queue.change("books", change, by=ME)
    assert queue.get("books").state is state


def test_crawls_have_their_turn_by_nice_and_then_by_when_they_were_queued(queue):
    """MNB-4: the place follows nice and the time; a revived crawl is the last, unless it stays."""
    for name, nice in (("first", 0), ("second", 0), ("urgent", -5)):
        queue.add(new(name, spider=name, nice=nice), by=ME)
    before = {one.name: one.place for one in queue.list()}
    queue.set("second", by=ME, nice=-10)
    queue.change("first", "abort", by=ME)
    queue.change("first", "revive", by=ME)
    queue.change("urgent", "abort", by=ME)
    queue.change("urgent", "revive", by=ME, keeps_place=True)

    assert before == {"urgent": 1, "first": 2, "second": 3}
    assert {one.name: one.place for one in queue.list()} == {"second": 1, "urgent": 2, "first": 3}


def test_two_named_crawls_may_have_the_same_spider_and_arguments(queue, engine):
    """A start by hand joins the first of them; the other is known by its name alone."""
    given = {"arguments": {"shelf": "7"}}
    queue.add(new("monday", **given), by=ME)
    queue.add(new("friday", **given), by=ME)

    with engine.begin() as connection:
        rows = connection.exec_driver_sql("SELECT name, identity IS NULL FROM crawls ORDER BY id")
        assert [tuple(row) for row in rows] == [("monday", False), ("friday", True)]
    with pytest.raises(OperationError, match="'monday' is in the queue, and active"):
        queue.add(new(**given), by=ME)
    with pytest.raises(OperationError, match="'friday' is that of a crawl of the spider books"):
        queue.add(new("friday", spider="other"), by=ME)


@pytest.mark.parametrize("name", ["a{b}", "line\nbreak"])
def test_a_name_that_would_break_elsewhere_is_refused(queue, name):
    """Braces are placeholders of ITEMGRAPH_CRAWL."""
    with pytest.raises(OperationError, match="cannot be a crawl's name"):
        queue.add(new(name), by=ME)


def test_who_is_not_in_the_queue_is_named_with_what_to_do(queue, engine):
    """A crawl of a start by hand stays nobody's until it is added; a name may be misspelt."""
    with engine.begin() as connection:
        connection.exec_driver_sql("INSERT INTO crawls (name) VALUES ('by-hand')")
    queue.add(new(), by=ME)

    with pytest.raises(NotFoundError, match=r"started by hand.*crawls add"):
        queue.change("by-hand", "pause", by=ME)
    with pytest.raises(NotFoundError, match="did you mean"):
        queue.get("bookz")
    assert [one.name for one in queue.list()] == ["books"]


def test_terms_are_checked_and_changed_while_it_waits(queue):
    """Nice, processes at once, tag, resource, time limit; None takes one back."""
    queue.add(new(), by=ME)
    changed = queue.set(
        "books", by=ME, concurrency=0, tag="eu", resource="proxy", time_limit=timedelta(hours=1)
    )
    back = queue.set("books", by=ME, tag=None, resource=None, time_limit=None)

    assert (changed.concurrency, changed.tag, changed.resource) == (0, "eu", "proxy")
    assert (back.tag, back.resource, back.time_limit) == (None, None, None)
    assert whats(queue, "books") == ["added", "set", "set"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"concurrency": -1}, "0 to 10,000; not -1"),
        ({"concurrency": True}, "not True"),
        ({"nice": 2**40}, "nice must be"),
        ({"nice": None}, "nice is an integer"),
        ({"time_limit": timedelta(0)}, "a second at least"),
        ({"tag": ""}, "tag is empty"),
        ({"note": "a\0b"}, "note has a NUL"),
        ({"start_settings": {"DEPTH": float("nan")}}, "settings"),
        ({"start_settings": {"API_TOKEN": "abc"}}, "-s API_TOKEN=@env:API_TOKEN"),
        ({"start_settings": {"ITEMGRAPH_DATABASE_URL": "x"}}, "looks like a secret"),
        ({"start_settings": {"LOG_LEVEL": "NOTALEVEL"}}, "there are CRITICAL, ERROR, WARNING"),
        ({"start_settings": {"DOWNLOAD_DELAY": "nan"}}, "DOWNLOAD_DELAY: write a number of sec"),
        ({"start_settings": {"DEPTH_LIMIT": None}}, "a whole number from 0, not 'null'"),
        ({"start_settings": {"ITEMGRAPH_DEFAULT_TTL": "soon"}}, "ITEMGRAPH_DEFAULT_TTL"),
        ({"x": 1}, "has no x to be set"),
    ],
)
def test_terms_that_cannot_be_are_refused_and_change_nothing(queue, wrong, said):
    """A value that the queue has no use for, or that would show a secret, is an error."""
    queue.add(new(), by=ME)

    with pytest.raises(OperationError, match=said):
        queue.set("books", by=ME, **wrong)
    assert whats(queue, "books") == ["added"]


@pytest.mark.parametrize("name", ["name", "crawler", "__class__"])
def test_no_argument_replaces_what_scrapy_has_on_every_spider(queue, name):
    """SS-3: a feed's `%(name)s` is the spider's, whoever adds the crawl, whatever the spider."""
    with pytest.raises(OperationError, match=f"'{name}' would replace"):
        queue.add(new(arguments={name: "../../outside"}), by=ME)
    assert queue.list() == []


def test_a_secret_is_named_by_a_variable_and_never_stored(queue, engine):
    """`-a token=abc` is refused, with the line to write; what names a variable is taken."""
    with pytest.raises(OperationError, match="-a token=@env:TOKEN, and set TOKEN") as error:
        queue.add(new(arguments={"token": "abc"}), by=ME)
    name, _ = queue.add(new(arguments={"token": "@env:TOKEN"}), by=ME)

    assert "abc" not in str(error.value)
    assert queue.get(name).arguments == {"token": "@env:TOKEN"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"arguments": {"start_url": "https://bob:s3same@b.example/"}}, "-a start_url=@env:START_"),
        ({"settings": {"FEEDS": {"ftp://u:s3same@h/x.csv": {}}}}, "-s FEEDS=@env:FEEDS, and set"),
        ({"settings": {"ITEMGRAPH_NOTIFY_URLS": "mailtos://ann:s3same@b.example"}}, "a URL in it"),
    ],
)
def test_a_password_in_a_url_is_never_stored(queue, given, said):
    """SS-3: of an argument, a setting or a feed's name; a user without one may be there."""
    with pytest.raises(OperationError, match=said) as error:
        queue.add(new(**given), by=ME)
    assert "s3same" not in str(error.value)
    assert queue.list() == []
    queue.add(new(arguments={"start_url": "https://bob@b.example:8080/@bob"}), by=ME)


def test_a_crawl_started_by_hand_goes_on_as_the_one_that_is_added(queue, engine):
    """Its spider and arguments tell: no second crawl is made, and a start by hand joins it."""
    start = CrawlStart(spider="books", given={"shelf": "7"})
    with engine.begin() as connection:
        before = crawl_starts.find_or_make(connection, start)
    name, _ = queue.add(new(arguments={"shelf": "7"}), by=ME)

    with engine.begin() as connection:
        after = crawl_starts.find_or_make(connection, start)
    assert (name, after.crawl_id) == (before.name, before.crawl_id)


def test_processes_and_runners_are_told_with_the_change(queue, engine):
    """A pause asks running jobs to stop and leaves pending ones, an abort cancels those, too."""
    queue.add(new(), by=ME)
    with engine.begin() as connection:
        worker = connection.exec_driver_sql(
            "INSERT INTO processes (kind, crawl_id, host, process_id, lease_until) "
            "SELECT 'worker', id, 'here', 1, now() + interval '1 hour' FROM crawls RETURNING id"
        ).scalar_one()
        connection.exec_driver_sql(
            "INSERT INTO jobs (crawl_id, origin, state) SELECT c.id, 'runner', s.state "
            "FROM crawls c CROSS JOIN (VALUES ('running'), ('pending')) AS s(state)"
        )

    def jobs():
        with engine.begin() as connection:
            rows = connection.exec_driver_sql("SELECT state, stop_wanted FROM jobs ORDER BY id")
            return [tuple(row) for row in rows]

    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        driver = connection.connection.driver_connection
        driver.execute("LISTEN itemgraph")
        queue.change("books", "pause", by=ME)
        driver.execute("SELECT 1")
        heard = {one.payload for one in driver.notifies(timeout=0)}
    paused = jobs()
    queue.change("books", "abort", by=ME)

    assert heard == {f"process {worker}", "runners"}
    assert paused == [("running", "pause"), ("pending", None)]
    assert jobs() == [("running", "abort"), ("cancelled", None)]


def test_an_event_has_all_that_the_order_follows_from(queue):
    """The order can be computed again from events alone: each has the crawl's terms."""
    queue.add(new(nice=3, concurrency=2, tag="eu", resource="proxy"), by=ME)
    queue.set("books", by=ME, nice=-1)
    queue.change("books", "pause", by=ME)

    details = [event.detail for event in queue.history("books")][::-1]
    assert [one["nice"] for one in details] == [3, -1, -1]
    assert {(one["concurrency"], one["tag"], one["resource"]) for one in details} == {
        (2, "eu", "proxy")
    }
    assert len({one["queued_at"] for one in details}) == 1


def test_a_revived_crawl_has_no_crashes_to_its_name(queue, engine):
    """What counted towards a crash loop, and put the next start off, is forgotten."""
    queue.add(new(), by=ME)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE crawls SET crashes = 4, crashed_at_pages = 9, next_at = now() + interval '1h'"
        )
    queue.change("books", "pause", by=ME)
    queue.change("books", "resume", by=ME)

    with engine.begin() as connection:
        row = connection.exec_driver_sql("SELECT crashes, crashed_at_pages, next_at FROM crawls")
        assert tuple(row.one()) == (0, None, None)


def test_a_role_that_only_reads_sees_the_queue(queue, engine):
    """Lists, history and reasons take no lock that a read-only transaction may not have."""
    queue.add(new(), by=ME)
    with engine.begin() as connection:
        connection.exec_driver_sql("SET TRANSACTION READ ONLY")
        assert queue_reports.crawl(connection, "books").place == 1
        assert len(queue_reports.history(connection, "books")) == 1
        assert queue_reports.processes(connection, "books") == []
        assert queue_reports.waits(connection, "books").crawl.name == "books"


def test_it_is_explained_why_a_crawl_waits(queue):
    """MNB-2: no runner, a tag that no runner has, nothing allowed, paused by somebody."""
    _, warnings = queue.add(new(tag="eu"), by=ME)
    waits = list(sentences(queue.explain("books")))
    queue.set("books", by=ME, concurrency=0)
    stopped = list(sentences(queue.explain("books")))
    queue.change("books", "pause", by=ME, reason="it is night")
    queue.set("books", by="bob@desk", note="tomorrow")
    paused = list(sentences(queue.explain("books")))

    assert "no runner of the project 'shop' has the tag 'eu' yet" in warnings[0]
    assert waits[0] == "it waits; its place in the queue of the project shop is 1"
    assert "no runner of the project shop lives" in waits[1]
    assert stopped == ["it may have 0 processes; scrapy itemgraph crawls set books --concurrency 1"]
    assert "it is paused by ann@desk" in paused[0]
    assert "it is night" in paused[0]


def test_a_place_of_a_runner_is_locked_to_one_crawl(queue, engine):
    """MNB-6: a place that is free is taken, one that is locked to another crawl is not."""
    queue.add(new(), by=ME)
    queue.add(new("other", spider="other"), by=ME)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "WITH made AS (INSERT INTO runners (name, project, places) VALUES ('north', 'shop', 2) "
            "RETURNING id) INSERT INTO places (runner_id, number) "
            "SELECT id, n FROM made CROSS JOIN generate_series(1, 2) n"
        )

    assert queue.lock("books", "north", by=ME) == 1
    assert queue.lock("books", "north", by=ME, until_finished=True) == 2
    with pytest.raises(OperationError, match="each place of the runner north is locked"):
        queue.lock("other", "north", by=ME)
    with pytest.raises(NotFoundError, match=r"there is no runner 'nort'.*did you mean"):
        queue.lock("other", "nort", by=ME)
    assert sorted(queue.unlock("books", by=ME)) == [("north", 1), ("north", 2)]
    assert queue.lock("other", "north", 2, by=ME) == 2
