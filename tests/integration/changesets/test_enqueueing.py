"""Requests that are enqueued: new, known, fetched again in each run, and what they find claimed."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa
from support import graphs, oracle
from support.statements import name_of

from scrapy_itemgraph import AddTag, CreateAlias, DeleteItem, RenameItem, UpdateData
from scrapy_itemgraph.changesets import flush
from scrapy_itemgraph.model import tasks
from scrapy_itemgraph.model.request_operations import WHENEVER, EnqueueRequest
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.store.registry import tasks as stored_tasks
from scrapy_itemgraph.store.worklist import refresh

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def crawl(connection) -> Iterator[graphs.Crawl]:
    """Yield a crawl with the callback `parse`, and check its worklist at the end."""
    crawl = graphs.Crawl(connection)
    found = stored_tasks.register_callbacks(
        connection, crawl.id, "shop", [tasks.of_callback("parse", {})], None
    )
    crawl.registration = stored_tasks.Registration(tasks=found)
    yield crawl
    oracle.assert_worklist_is_true(connection, crawl.id)


def request(
    name: str = "A",
    number: int = 1,
    *,
    again: int | None = None,
    nice: int = 0,
    changed_at: datetime | None = None,
) -> EnqueueRequest:
    """Return the operation for a request of the callback `parse`."""
    return EnqueueRequest(
        id=name,
        tags=(tasks.callback_tag("parse"),),
        data={"url": f"http://{graphs.SLOT}/{number}", "request": {"callback": "parse"}},
        nice=nice,
        again=again,
        changed_at=changed_at,
    )


def enqueue(crawl: graphs.Crawl, *given: EnqueueRequest, claim: Any = None) -> list[str]:
    """Commit requests, as work that yields them or outside of all; return what became of them."""
    applied = crawl.end(claim, *given)
    assert applied.error is None, applied.error
    return [note.label for note in applied.notes]


def this_run(crawl: graphs.Crawl) -> int:
    """Return the number of the run under way."""
    return crawl.connection.scalar(sa.text("SELECT run FROM crawls"))


def run_begins(crawl: graphs.Crawl) -> int:
    """Return the number of the next run, which begins."""
    return crawl.connection.scalar(sa.text("UPDATE crawls SET run = run + 1 RETURNING run"))


def number_of(crawl: graphs.Crawl, name: str = "A") -> str:
    """Return the last part of an item's URL."""
    return crawl.get(name).data["url"].rpartition("/")[2]


# New and known


def test_a_new_request_is_work(crawl):
    """Its item has the request's data, its nice, and the page that yielded it."""
    enqueue(crawl, request("PARENT"))

    labels = enqueue(crawl, request("A", nice=-3), claim=crawl.claim_pair("PARENT"))

    assert labels == ["new"]
    assert crawl.worklist() == ["A parse"]
    ((created_by, nice),) = crawl.rows("SELECT created_by, nice FROM items WHERE name = 'A'")
    assert (created_by, nice) == ("PARENT", -3)


def test_rows_of_deleted_items_are_looked_up_by_index(crawl):
    """However small tables are known to be, deleting what refers to an item reads none whole."""
    enqueue(crawl, request(), *(request(f"B{n}", n) for n in range(20)))
    scans = sa.text("""
        SELECT sum(seq_scan) FROM pg_stat_xact_user_tables
        WHERE relname IN ('items', 'aliases', 'tags', 'results')
    """)
    crawl.connection.execute(sa.text("ANALYZE items, aliases, tags, results"))
    before = crawl.connection.scalar(scans)

    engines.hot_path(crawl.connection)
    items = [crawl.item_id(f"B{n}") for n in range(10)]
    crawl.connection.execute(flush.DELETE_ITEMS, {"items": items})
    refresh.refresh(crawl.connection, items)

    assert crawl.connection.scalar(scans) == before
    assert crawl.get("B0") is None


def test_new_items_get_work_in_queues_and_of_kinds_that_are_not_there_yet(crawl):
    """Where a page's links lead to hosts old and new, each gets its work in one commit."""
    enqueue(crawl, request())
    elsewhere = EnqueueRequest(
        id="C",
        tags=(tasks.callback_tag("parse"),),
        data={"url": "http://elsewhere.test/1", "request": {"callback": "parse"}},
    )

    labels = enqueue(crawl, request("B"), elsewhere)

    assert labels == ["new", "new"]
    assert sorted(crawl.worklist()) == ["A parse", "B parse", "C parse"]


def test_a_request_outside_of_work_has_no_creator(crawl):
    """A start request was created by nobody."""
    enqueue(crawl, request())

    assert crawl.rows("SELECT created_by FROM items") == [(None,)]


@pytest.mark.parametrize("state", ["waiting", "claimed", "done", "held"])
def test_a_known_request_changes_nothing(crawl, state):
    """Without `again` it is a duplicate, in whatever state the item is."""
    enqueue(crawl, request())
    if state == "claimed":
        crawl.claimed()
    elif state == "done":
        crawl.done()
    elif state == "held":
        crawl.failed()
    before = crawl.worklist(), crawl.state(), crawl.failures()

    assert enqueue(crawl, request(number=2, nice=5)) == ["known"]

    assert (crawl.worklist(), crawl.state(), crawl.failures()) == before
    assert number_of(crawl) == "1"
    assert crawl.rows("SELECT nice FROM items") == [(0,)]


def test_two_of_a_batch_are_one(crawl):
    """Of two executions that yield the same request in one transaction the second knows it."""
    enqueue(crawl, request("P"), request("Q"))
    first, second = sorted(crawl.claim(), key=lambda claim: claim.item.id)

    applied = crawl.commit(
        graphs.changeset(first, request()), graphs.changeset(second, request(number=2))
    )

    assert [[note.label for note in one.notes] for one in applied] == [["new"], ["known"]]
    assert number_of(crawl) == "1"


def test_a_request_of_a_failed_callback_is_enqueued(crawl):
    """Plain callbacks have failure allowed: what was yielded before the error goes on."""
    enqueue(crawl, request("PARENT"))
    claim = crawl.claim_pair("PARENT")

    crawl.end(claim, request(), outcome=Outcome.FAILED, allow_failure=True)

    assert crawl.worklist() == ["A parse"]
    assert crawl.failures() == ["PARENT"]


# Again in each run


def test_a_start_request_is_fetched_again_in_the_next_run(crawl):
    """What was done before the run began is stale; of what a run has done it stays fresh."""
    enqueue(crawl, request(again=this_run(crawl)))
    crawl.done()
    run = run_begins(crawl)

    labels = enqueue(crawl, request(again=run))
    crawl.done()
    again = enqueue(crawl, request(again=run))

    assert labels == ["again"]
    assert again == ["known"]
    assert crawl.worklist() == []


def test_a_result_without_a_number_is_of_the_first_run(crawl):
    """What was stored before there were numbers: done in the run that goes on, old in the next."""
    enqueue(crawl, request(again=1))
    crawl.done()
    crawl.connection.execute(sa.text("UPDATE results SET run = NULL"))

    goes_on = enqueue(crawl, request(again=1))
    later = enqueue(crawl, request(again=2))

    assert (goes_on, later) == (["known"], ["again"])


def test_a_start_request_that_waits_is_not_asked_for_twice(crawl):
    """Two workers that yield it in one run make one piece of work of it."""
    enqueue(crawl, request(again=this_run(crawl)))
    crawl.done()
    run = run_begins(crawl)

    labels = [enqueue(crawl, request(again=run)) for _ in range(2)]

    assert labels == [["again"], ["known"]]
    assert crawl.worklist() == ["A parse"]


def test_what_waits_since_the_last_run_is_known(crawl):
    """A start request that was never done is not asked for again."""
    enqueue(crawl, request(again=this_run(crawl)))
    run = run_begins(crawl)

    assert enqueue(crawl, request(again=run)) == ["known"]

    assert crawl.worklist() == ["A parse"]


def test_a_request_that_is_fetched_again_takes_its_new_data(crawl):
    """A start request whose meta or headers were changed in code is sent as it is now."""
    enqueue(crawl, request(again=this_run(crawl)))
    crawl.done()

    enqueue(crawl, request(number=2, again=run_begins(crawl)))

    assert number_of(crawl) == "2"


def test_an_alias_does_not_take_the_data_of_a_request(crawl):
    """Where an earlier request was redirected to: it is fetched again as what it was."""
    enqueue(crawl, request("ORIGIN"))
    crawl.done("ORIGIN", CreateAlias("A"))

    labels = enqueue(crawl, request(number=2, again=run_begins(crawl)))

    assert labels == ["again"]
    assert crawl.worklist() == ["ORIGIN parse"]
    assert number_of(crawl, "ORIGIN") == "1"


def test_what_failed_is_tried_again(crawl):
    """A held result of an earlier run is let go, and its failure handled."""
    enqueue(crawl, request(again=this_run(crawl)))
    claim = crawl.claimed()
    crawl.end(claim, outcome=Outcome.FAILED, allow_failure=True)
    assert crawl.failures() == ["A"]

    labels = enqueue(crawl, request(again=run_begins(crawl)))

    assert labels == ["again"]
    assert crawl.failures() == []
    assert crawl.worklist() == ["A parse"]


def test_what_was_refused_is_tried_again(crawl):
    """So is a request that robots.txt or allowed_domains refused in an earlier run."""
    enqueue(crawl, request(again=this_run(crawl)))
    crawl.end(crawl.claimed(), outcome=Outcome.REFUSED)

    labels = enqueue(crawl, request(again=run_begins(crawl)))

    assert labels == ["again"]
    assert crawl.worklist() == ["A parse"]


@pytest.mark.parametrize("allow_failure", [True, False])
def test_what_failed_in_this_run_is_not_tried_again(crawl, allow_failure):
    """A second worker that yields the start request later leaves the failure to a person."""
    run = this_run(crawl)
    enqueue(crawl, request(again=run))
    claim = crawl.claimed()
    crawl.end(claim, outcome=Outcome.FAILED, allow_failure=allow_failure)

    labels = enqueue(crawl, request(again=run))

    assert labels == ["known"]
    assert crawl.failures() == ["A"]
    assert crawl.worklist() == []


def test_what_is_claimed_meanwhile_is_left_to_its_claim(crawl):
    """The first fetch of a request answers whoever asks for it while it is under way."""
    enqueue(crawl, request(again=this_run(crawl)))
    claim = crawl.claimed()
    run = run_begins(crawl)

    labels = enqueue(crawl, request(again=run))
    crawl.end(claim)

    assert labels == ["known"]
    assert crawl.worklist() == []


def test_what_is_fetched_again_just_now_is_not_fetched_once_more(crawl):
    """A claim that answers "again" stays the answer until it has ended, and then it is fresh."""
    enqueue(crawl, request(again=this_run(crawl)))
    crawl.done()
    run = run_begins(crawl)
    enqueue(crawl, request(again=run))
    claim = crawl.claimed()

    labels = enqueue(crawl, request(again=run))
    crawl.end(claim)

    assert labels == ["known"]
    assert crawl.state() == "fresh"
    assert crawl.worklist() == []


# Copies that are not filtered


def test_an_unfiltered_child_is_fetched_again_whenever_its_parent_runs(crawl):
    """With `WHENEVER` a result is stale whenever it is asked for."""
    enqueue(crawl, request(again=WHENEVER))
    crawl.done()

    first = enqueue(crawl, request(again=WHENEVER))
    waiting = crawl.worklist()
    crawl.done()
    second = enqueue(crawl, request(again=WHENEVER))

    assert (first, second) == (["again"], ["again"])
    assert waiting == crawl.worklist() == ["A parse"]


def test_an_unfiltered_child_that_failed_is_fetched_again(crawl):
    """Its failure is handled when its parent yields it again."""
    enqueue(crawl, request(again=WHENEVER))
    crawl.end(crawl.claimed(), outcome=Outcome.FAILED, allow_failure=True)

    labels = enqueue(crawl, request(again=WHENEVER))

    assert labels == ["again"]
    assert crawl.failures() == []
    assert crawl.worklist() == ["A parse"]


# Others' doing


def test_a_deleted_request_is_new_again(crawl):
    """With forget it may come back, without it its name stays taken."""
    enqueue(crawl, request("A"), request("B"))
    crawl.do(DeleteItem("A"), DeleteItem("B", forget=False))

    labels = enqueue(crawl, request("A", again=WHENEVER), request("B"))
    tombstone = enqueue(crawl, request("B", again=WHENEVER))

    assert labels == ["new", "known"]
    assert tombstone == ["known"]
    assert crawl.worklist() == ["A parse"]


def test_a_renamed_request_is_known_by_its_old_name(crawl):
    """What a callback renamed is fetched again in the next run, as it was."""
    enqueue(crawl, request(again=this_run(crawl)))
    crawl.done("A", RenameItem(to="ARTICLE:1"), UpdateData({"title": "one"}))

    labels = enqueue(crawl, request(number=2, again=run_begins(crawl)))

    assert labels == ["again"]
    assert crawl.worklist() == ["ARTICLE:1 parse"]
    assert crawl.get("A").data["title"] == "one"


def test_data_that_callbacks_added_outlives_another_fetch(crawl):
    """UpdateData in a callback is not undone when the next run yields the request again."""
    enqueue(crawl, request(again=this_run(crawl)))
    crawl.done("A", UpdateData({"title": "one"}))

    enqueue(crawl, request(number=2, again=run_begins(crawl)))

    assert crawl.get("A").data.get("title") == "one"
    assert number_of(crawl) == "2"


def test_data_that_callbacks_added_outlives_another_callback(crawl):
    """So it is when the code has given the request another callback meanwhile."""
    found = stored_tasks.register_callbacks(
        crawl.connection, crawl.id, "shop", [tasks.of_callback("digest", {})], None
    )
    crawl.registration.tasks.update(found)
    enqueue(crawl, request(again=this_run(crawl)))
    crawl.done("A", UpdateData({"title": "one"}))

    of_now = EnqueueRequest(
        id="A",
        tags=(tasks.callback_tag("digest"),),
        data={"url": f"http://{graphs.SLOT}/2", "request": {"callback": "digest"}},
        again=run_begins(crawl),
    )
    labels = enqueue(crawl, of_now)

    assert labels == ["again"]
    assert crawl.worklist() == ["A digest"]
    assert crawl.get("A").data == {**of_now.data, "title": "one"}


def test_results_of_other_tasks_of_the_item_stay(crawl):
    """What a tag of the item called for is not done again because its request is."""
    crawl.register(digest={"tags": ["book"]})
    found = stored_tasks.register_callbacks(
        crawl.connection, crawl.id, "shop", [tasks.of_callback("parse", {})], None
    )
    crawl.registration.tasks.update(found)
    crawl.sweep()
    enqueue(crawl, request(again=this_run(crawl)))
    crawl.done("A", AddTag("book"))
    crawl.done("A", task="digest")

    labels = enqueue(crawl, request(again=run_begins(crawl)))

    assert labels == ["again"]
    assert crawl.worklist() == ["A parse"]


def test_an_expired_request_is_not_asked_for_twice(crawl):
    """What fell due by its time to live waits already when the run yields it."""
    found = stored_tasks.register_callbacks(
        crawl.connection,
        crawl.id,
        "shop",
        [tasks.of_callback("brief", {"ttl": "1h"})],
        timedelta(hours=1),
    )
    crawl.registration.tasks.update(found)
    brief = EnqueueRequest(
        id="BRIEF",
        tags=(tasks.callback_tag("brief"),),
        data={"url": f"http://{graphs.SLOT}/brief", "request": {"callback": "brief"}},
    )
    enqueue(crawl, brief)
    crawl.done("BRIEF", task="brief")
    crawl.age(hours=2)

    assert enqueue(crawl, brief) == ["known"]
    assert crawl.worklist() == ["BRIEF brief"]


# Said to have changed


def now_of(crawl: graphs.Crawl) -> datetime:
    """Return the time of the database's clock."""
    return crawl.connection.scalar(sa.text("SELECT clock_timestamp()"))


def test_a_page_that_changed_since_it_was_fetched_is_fetched_again(crawl):
    """48.4: a hint makes a result from before it stale once, in this run and in a later one."""
    enqueue(crawl, request())
    crawl.done()
    for number in (2, 3):
        crawl.age(days=1)
        changed_at = now_of(crawl) - timedelta(hours=1)

        labels = [enqueue(crawl, request(number=number, changed_at=changed_at)) for _ in range(2)]

        assert labels == [["again"], ["known"]]
        assert crawl.worklist() == ["A parse"]
        assert number_of(crawl) == str(number)
        crawl.done()
        assert enqueue(crawl, request(changed_at=changed_at)) == ["known"]
        assert crawl.state() == "fresh"
        run_begins(crawl)


def test_a_hint_asks_for_nothing_else(crawl):
    """48.4: it does nothing to pages that are new, done later, failed, gone or under work."""
    names = ["done later", "failed", "gone", "claimed", "stale and claimed", "waiting"]
    enqueue(crawl, *(request(name) for name in names))
    crawl.done("stale and claimed")
    crawl.failed("failed")
    crawl.end(crawl.claimed("gone"), outcome=Outcome.GONE)
    crawl.age(days=1)
    enqueue(crawl, request("stale and claimed", again=WHENEVER))
    held = [crawl.claim_pair("claimed"), crawl.claim_pair("stale and claimed")]
    changed_at = now_of(crawl) - timedelta(hours=1)
    crawl.done("done later")
    before = crawl.worklist(), [crawl.state(name) for name in names], crawl.failures()

    labels = enqueue(crawl, *(request(one, 2, changed_at=changed_at) for one in [*names, "new"]))

    assert labels == ["known"] * 6 + ["new"]
    assert crawl.worklist() == [*before[0], "new parse"] == ["waiting parse", "new parse"]
    assert ([crawl.state(name) for name in names], crawl.failures()) == before[1:]
    assert {number_of(crawl, name) for name in names} == {"1"}
    for claim in held:
        assert crawl.end(claim).outcome is Outcome.OK
    assert crawl.worklist() == ["waiting parse", "new parse"]


def test_a_hint_on_where_a_redirect_led_has_its_page_fetched_again(crawl):
    """48.4: by the request that led there, as a link in a later run would."""
    enqueue(crawl, request("ORIGIN"))
    crawl.done("ORIGIN", CreateAlias("A"))
    crawl.age(days=1)

    labels = enqueue(crawl, request(number=2, changed_at=now_of(crawl) - timedelta(hours=1)))

    assert (labels, crawl.worklist()) == (["again"], ["ORIGIN parse"])
    assert number_of(crawl, "ORIGIN") == "1"


def test_of_two_hints_of_a_batch_the_later_one_counts(crawl):
    """48.4: also where the earlier one comes first, and the page's name is another's alias."""
    enqueue(crawl, request())
    crawl.done("A", CreateAlias("B"))
    crawl.age(days=1)
    hour = timedelta(hours=1)
    early, late = now_of(crawl) - 48 * hour, now_of(crawl) - hour

    labels = enqueue(crawl, request("B", changed_at=early), request(changed_at=late))

    assert labels == ["known", "again"]


def test_only_hints_cost_a_statement_and_only_old_results_a_lock(crawl):
    """48.4: a batch without hints sends the same statements; newer results are not loaded."""
    enqueue(crawl, *(request(name) for name in ("old", "new")))
    crawl.done("old")
    crawl.age(days=1)
    hint = {"changed_at": now_of(crawl) - timedelta(hours=1)}
    crawl.done("new")

    def sent(*given: EnqueueRequest) -> list[str]:
        names: list[str] = []

        def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
            names.append(name_of(statement))

        sa.event.listen(crawl.connection, "before_cursor_execute", note)
        enqueue(crawl, *given)
        sa.event.remove(crawl.connection, "before_cursor_execute", note)
        return [name for name in names if name.startswith("load.")]

    assert sent(request("old"), request("new")) == ["load.TASKS"]
    assert sent(request("new", **hint)) == ["load.TASKS", "load.OF_BEFORE"]
    loaded = sent(request("new", **hint), request("old", **hint))
    of_items = ["load.LOCK", "load.TAGS", "load.NAMES", "load.RESULTS"]
    assert loaded == ["load.TASKS", "load.OF_BEFORE", *of_items]
