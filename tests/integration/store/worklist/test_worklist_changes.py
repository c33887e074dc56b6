"""What changes the worklist: code, failures, seeds, renamed tags, deaths."""

from __future__ import annotations

from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest
from support import graphs, oracle
from support.worklists import claimed

from scrapy_itemgraph import AddTag, CreateItem, RemoveTag, SetTTL, UpdateData
from scrapy_itemgraph.model import tasks
from scrapy_itemgraph.model.due_times import Expiry
from scrapy_itemgraph.model.work import InFlight, Outcome
from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store import in_flight
from scrapy_itemgraph.store.admin import crawl_changes, explain, outstanding, status
from scrapy_itemgraph.store.registry import item_sweeps
from scrapy_itemgraph.store.registry import tasks as stored_tasks
from scrapy_itemgraph.store.worklist import claims, expired_results

DEATHS = "SELECT i.name AS item, w.deaths FROM work w JOIN items i ON i.id = w.item_id"
PARSE = {"parse": {"tags": ["page"]}}


# Code changes


def test_a_version_bump_makes_results_stale(crawl):
    """SRAP-20: a result of another version is stale; the metadata stays until it is replaced."""
    crawl.done("A")

    crawl.register(parse={"tags": ["page"], "version": "2"})
    stale = crawl.state("A")
    crawl.done("A")

    assert stale == "stale"
    assert crawl.result("A").version == "2"
    assert crawl.state("A") == "fresh"


def test_a_claim_commits_under_its_own_version(crawl):
    """SRAP-20: a claim that runs through a version bump commits as the old one, stale at once."""
    claim = crawl.claimed("A")
    old = crawl.registration

    crawl.register(parse={"tags": ["page"], "version": "2"})
    crawl.end(claim)

    assert crawl.result("A").version == "1"
    assert crawl.worklist() == ["A parse"]
    assert stored_tasks.outdated(crawl.connection, 0, old.tasks) == ({"parse"}, set())


def test_a_worker_that_is_registered_anew_leaves_what_a_later_start_declared(crawl):
    """SRAP-12: the latest start wins, also where its database goes back under an older worker."""
    crawl.register(parse={"tags": ["page"], "version": "2"})

    again = stored_tasks.register_tasks(
        crawl.connection,
        crawl.id,
        crawl.spider,
        tasks.discover(graphs.spider(**PARSE)),
        None,
        outdated={"parse"},
    )

    (row,) = stored_tasks.known_tasks(crawl.connection, crawl.id)
    assert row.version == "2"
    assert {one.version for one in again.tasks.values()} == {"1"}
    assert stored_tasks.outdated(crawl.connection, 0, again.tasks) == ({"parse"}, set())


def test_an_older_worker_leaves_a_redefined_task_alone(crawl):
    """SRAP-12: the latest start wins; a worker with another declaration claims it no more."""
    old = crawl.registration
    crawl.register(parse={"tags": ["page"], "version": "2"})
    crawl.work("A")
    new, crawl.registration = crawl.registration, old

    stale = crawl.claim()
    crawl.registration = new

    assert stale == []
    assert len(crawl.claim()) == 1


def test_a_version_bump_may_retry_what_failed(crawl):
    """SRAP-18: with retry_failed_on_version_bump a bump handles failures and runs them again."""
    crawl.failed("A")
    crawl.failed("B")

    crawl.register(parse={"tags": ["page"], "version": "2", "retry_failed_on_version_bump": True})

    assert crawl.worklist() == ["A parse", "B parse"]
    assert crawl.failures() == []


def test_a_version_bump_retries_what_no_tag_calls_for_by_then(crawl, monkeypatch):
    """A failure on an item that lost the task's tag is handled, too; with the tag it runs again."""
    monkeypatch.setattr(item_sweeps, "SWEEP_STEP", 2)
    for name in "ABCDE":
        crawl.failed(name)
    crawl.do(*(RemoveTag("page", id=name) for name in "ACDE"))

    crawl.register(parse={"tags": ["page"], "version": "2", "retry_failed_on_version_bump": True})

    assert crawl.failures() == []
    assert crawl.worklist() == ["B parse"]
    crawl.do(AddTag("page", id="E"))
    assert crawl.worklist() == ["B parse", "E parse"]


@pytest.mark.parametrize("crashed", [False, True])
def test_a_new_task_reaches_the_items_that_carry_its_tag_already(crawl, monkeypatch, crashed):
    """A sweep in steps takes a code change up; after a crash the next worker goes on with it."""
    monkeypatch.setattr(item_sweeps, "SWEEP_STEP", 2)
    names = [f"{n}" for n in range(5)]
    for name, tag in zip(names, ("book", "note", "note", "book", "book"), strict=True):
        crawl.item(name, tags=[tag])

    crawl.register(swept=False, parse={"tags": ["page", "book", "note"]})
    counts = []
    while crawl.sweep_step():
        counts.append(len(crawl.worklist()))
        oracle.assert_worklist_is_true(crawl.connection, crawl.id)
        if crashed:
            step = crawl.connection.begin_nested()
            item_sweeps.sweep(crawl.connection, crawl.id)
            step.rollback()

    assert counts == [2, 4, 5]
    assert crawl.worklist() == [f"{name} parse" for name in names]


def test_a_sweep_reaches_dependents_on_items_that_lost_the_dependencys_tag(connection):
    """A version bump keeps back a dependent task of items that no tag of the bumped one is on."""
    review = {"tags": ["book"], "depends_on": ["parse"]}
    crawl = graphs.Crawl.of(connection, parse={"tags": ["page"]}, review=review)
    crawl.done("A", tags=["page", "book"])
    crawl.do(RemoveTag("page", id="A"))
    before = crawl.worklist()

    crawl.register(parse={"tags": ["page"], "version": "2"}, review=review)

    assert before == ["A review"]
    assert crawl.worklist() == []
    oracle.assert_worklist_is_true(connection, crawl.id)


def test_sweeps_and_staging_go_a_hundred_items_at_a_time(crawl):
    """A step is small, for it blocks the loop of a crawl while it runs."""
    crawl.do(*(CreateItem(f"{number}", ["page"]) for number in range(101)))

    crawl.register(swept=False, parse={"tags": ["page"], "ttl": "1h"}, new={"tags": ["page"]})
    while "1 new" not in crawl.worklist():
        crawl.sweep_step()
    swept = len(crawl.worklist()) - 101
    crawl.sweep()
    crawl.commit(*(graphs.changeset(claim) for claim in crawl.claim()))
    until = crawl.connection.scalar(engine.NOW) + timedelta(hours=2)
    staged = [expired_results.stage_results(crawl.connection, crawl.id, until) for _ in range(2)]

    assert swept == 100
    assert staged == [100, 1]


def test_what_a_tag_no_longer_calls_for_leaves_the_worklist(crawl, monkeypatch):
    """A task that lost a tag is withdrawn from unclaimed items; claimed work finishes."""
    monkeypatch.setattr(item_sweeps, "SWEEP_STEP", 2)
    for name in "ABCDE":
        crawl.work(name)
    claim = crawl.claim_pair("B")

    crawl.register(parse={"tags": ["book"]})

    assert crawl.worklist() == []
    assert crawl.end(claim, UpdateData({"n": 1})).outcome is Outcome.OK
    assert crawl.get("B").data["n"] == 1
    assert crawl.result("B").is_successful


def test_a_vanished_task_leaves_the_worklist_and_keeps_its_results(crawl):
    """A task no longer declared is told of if it has results; back in code it goes on."""
    crawl.register(parse={"tags": ["page"]}, price={"tags": ["page"]})
    crawl.done("A")
    crawl.work("B")

    gone = crawl.register(price={"tags": ["page"]})
    left = crawl.worklist()
    crawl.register(parse={"tags": ["page"]}, price={"tags": ["page"]})

    assert gone.vanished == ("parse",)
    assert left == ["A price", "B price"]
    assert crawl.worklist() == ["A price", "B price", "B parse"]
    assert crawl.state("A") == "fresh"


def test_another_spiders_tasks_do_not_vanish(crawl):
    """Only tasks registered by the same spider name are removed by its absence."""
    crawl.work("A")
    crawl.spider = "another"

    registered = crawl.register(other={"tags": ["page"]})

    assert registered.vanished == ()
    assert crawl.worklist() == ["A parse", "A other"]


def test_registering_the_same_tasks_again_changes_nothing(crawl):
    """A start with the code unchanged opens no sweep."""
    registered = crawl.register(swept=False, **PARSE)

    assert registered.changed == ()
    assert not crawl.sweep_step()


def test_changed_options_move_work(crawl):
    """A task's new nice and slot move its unclaimed work."""
    crawl.work("A")

    crawl.register(parse={"tags": ["page"], "nice": -7, "slot": "api.example"})

    (row,) = outstanding.worklist(crawl.connection, crawl.id, task=None, limit=10)
    assert (row.nice, row.slot) == (-7, "api.example")


def test_a_ttl_changed_in_code_is_for_new_results_until_it_is_recomputed(crawl):
    """SRAP-24: old results keep their expiry; a recompute changes all but overridden ones."""
    crawl.done("A")
    crawl.done("B", SetTTL("9d"))
    crawl.register(parse={"tags": ["page"], "ttl": "1h"})
    before = crawl.result("A").expires_at

    changed = crawl_changes.recompute_ttl(crawl.connection, crawl.id, crawl.task_id("parse"))
    crawl.sweep()
    crawl.age(hours=2)

    assert before is None
    assert changed == 1
    assert (crawl.state("A"), crawl.state("B")) == ("stale", "fresh")
    assert crawl.worklist() == ["A parse"]


@pytest.mark.parametrize("by", ["an operation", "the task"])
def test_a_ttl_that_is_over_leaves_stale_work_in_its_place(connection, by):
    """What has expired, and by another TTL still has, is never fresh in between."""
    crawl = graphs.Crawl.of(connection, parse={"tags": ["page"], "ttl": "2h"})
    crawl.done("A")
    crawl.age(hours=1)
    crawl.done("B")
    crawl.age(hours=1)
    crawl.age(hours=1)
    before = crawl.worklist()

    if by == "the task":
        crawl.register(parse={"tags": ["page"], "ttl": "1h"})
        crawl_changes.recompute_ttl(connection, crawl.id, crawl.task_id("parse"))
        crawl.sweep()
    else:
        crawl.do(SetTTL("1h", id="A", task="parse"))
    seen = crawl.state("A"), crawl.state("B")
    crawl.stage()

    assert before == ["A parse", "B parse"]
    assert seen == ("stale", "stale")
    assert crawl.worklist() == before


# Failures that stop a task


@pytest.fixture
def fragile(connection):
    """Yield a crawl whose task stops at two open failures; check its worklist at the end."""
    crawl = graphs.Crawl.of(connection, parse={"tags": ["page"], "max_failures": 2})
    yield crawl
    oracle.assert_worklist_is_true(connection, crawl.id)


def test_max_failures_stop_a_task_until_they_are_handled(fragile):
    """SRAP-28, SRAP-29: open failures up to max_failures stop the claims; handling lifts it."""
    fragile.work("C")
    fragile.failed("A")
    after_one = claimed(fragile)
    claims.release_all(fragile.connection, fragile.worker)
    fragile.failed("B")
    after_two = claimed(fragile)
    listed = fragile.worklist()
    fragile.handle("parse", retry=False)

    assert after_one == ["C parse"]
    assert after_two == []
    assert listed == ["C parse"]
    assert claimed(fragile) == ["C parse"]


def test_refusals_do_not_count_as_failures(fragile):
    """SRAP-28: work refused by robots.txt or offsite does not stop its task."""
    for name in "ABC":
        fragile.end(fragile.claimed(name), outcome=Outcome.REFUSED)
    fragile.work("D")

    assert claimed(fragile) == ["D parse"]


def test_failures_of_items_that_lost_the_tag_do_not_count(fragile):
    """SRAP-28: a failure whose item the task is not called for any more is kept, not counted."""
    fragile.failed("A")
    fragile.failed("B")
    fragile.work("C")
    stopped = claimed(fragile)

    fragile.do(RemoveTag("page", id="A"))

    assert stopped == []
    assert claimed(fragile) == ["C parse"]
    assert fragile.failures() == ["A", "B"]


def test_a_disabled_task_is_outstanding_and_not_claimed(crawl):
    """A disabled task's work stays listed, and is claimed when the task is enabled again."""
    crawl.work("A")
    task = crawl.task_id("parse")

    stored_tasks.set_enabled(crawl.connection, crawl.id, task, enabled=False)
    disabled = claimed(crawl)
    listed = crawl.worklist()
    stored_tasks.set_enabled(crawl.connection, crawl.id, task, enabled=True)

    assert disabled == []
    assert listed == ["A parse"]
    assert claimed(crawl) == ["A parse"]


# Seeds


def test_seeds_are_inserted_only_if_they_are_absent(crawl):
    """SRAP-30: seeding again changes nothing of what is there, and makes no work anew."""
    seeds = [CreateItem(name, ["page"], {"n": 1}) for name in "AB"]
    crawl.do(*seeds)
    crawl.done("A", UpdateData({"n": 2}))

    labels = crawl.do(*seeds)

    assert labels == ["known", "known"]
    assert crawl.get("A").data == {"n": 2}
    assert crawl.worklist() == ["B parse"]


# Tag renames


def test_a_tag_is_renamed_in_the_whole_database(crawl):
    """SRAP-32: a rename moves the tag with its value, and the work of its tasks, at start."""
    crawl.register(parse={"tags": ["page"]}, read={"tags": ["book"]})
    crawl.item("A", tags={"page": 5})
    crawl.item("B", tags={"other": 1})

    counts = item_sweeps.rename_tags(crawl.connection, {"page": "book"})
    crawl.sweep()

    assert counts == {"page": 1}
    assert crawl.get("A").tags == {"book": 5}
    assert crawl.get("B").tags == {"other": 1}
    assert crawl.worklist() == ["A read"]


def test_a_renamed_tag_merges_into_one_that_is_there(crawl):
    """SRAP-32: where an item has both tags, the one of the new name stays as it is."""
    crawl.item("A", tags={"old": 1, "page": 2})
    crawl.item("B", tags={"old": 3})

    item_sweeps.rename_tags(crawl.connection, {"old": "page"})
    crawl.sweep()

    assert crawl.get("A").tags == {"page": 2}
    assert crawl.get("B").tags == {"page": 3}
    assert crawl.worklist() == ["A parse", "B parse"]


def test_a_tag_rename_can_be_applied_again_and_again(crawl):
    """SRAP-32: applied at each start, a rename finds nothing the second time, nor one to itself."""
    crawl.item("A", tags=["old"])
    renames = {"old": "page", "page": "page"}
    item_sweeps.rename_tags(crawl.connection, renames)

    counts = item_sweeps.rename_tags(crawl.connection, renames)
    crawl.sweep()

    assert counts == {"old": 0, "page": 0}
    assert crawl.worklist() == ["A parse"]


# Deaths


def test_work_of_a_dead_worker_is_taken_over(crawl):
    """SRAP-11: when a worker's lease is over others have its claims, and it commits nothing."""
    crawl.work("A")
    (zombie,) = crawl.claim(worker=crawl.new_worker(timedelta(seconds=-1)))

    freed = crawl.take_over()
    (claim,) = crawl.claim()

    assert freed == 1
    assert crawl.end(zombie, UpdateData({"n": 1})).outcome is None
    assert crawl.end(claim, UpdateData({"n": 2})).outcome is Outcome.OK
    assert crawl.get("A").data["n"] == 2
    assert crawl.attempts("A") == ["died", "ok"]


def test_work_that_kills_its_workers_ends_as_a_failure(crawl):
    """After two deaths work is claimed alone; three more in a row while alone are the failure."""
    crawl.work("A")
    crawl.work("B")
    for _ in range(2):
        crawl.die(1)

    beside = claimed(crawl)
    (alone,) = crawl.claim(alone=True)
    crawl.release(alone)
    for _ in range(2):
        crawl.die(1, alone=True)
    state = crawl.state("A")
    crawl.die(1, alone=True)

    assert beside == ["B parse"]
    assert alone.is_alone
    assert alone.attempt == 1
    assert (state, crawl.state("A")) == ("never run", "held")
    (row,) = crawl.rows("SELECT error FROM failures")
    assert row.error["type"] == "worker died"
    assert row.error["url"] == f"http://{graphs.SLOT}/A"


def test_a_try_that_comes_to_its_end_ends_a_row_of_deaths(crawl):
    """Two deaths alone, a retryable error, and two more deaths: that is no failure yet."""
    crawl.work("A")
    for _ in range(2):
        crawl.die(1)
    for _ in range(2):
        crawl.die(1, alone=True)
    (claim,) = crawl.claim(alone=True)
    crawl.end(claim, outcome=Outcome.RETRY, delay=timedelta())
    crawl.stage()
    for _ in range(2):
        assert crawl.die(1, alone=True) == 1

    assert crawl.failures() == []
    assert crawl.die(1, alone=True) == 1
    assert crawl.failures() == ["A"]


def test_a_claim_puts_in_flight_what_the_engine_takes_beside_what_it_has(crawl):
    """The claims that may begin at once are marked, and written with what was in flight."""
    for name in "ABC":
        crawl.work(name)
    given = InFlight(pairs={(0, 0)}, room=2)

    claims = crawl.claim(in_flight=given)

    assert [one.is_in_flight for one in claims] == [True, True, False]
    (row,) = crawl.rows("SELECT items FROM handed")
    assert sorted(row.items) == [0, *sorted(one.item_id for one in claims[:2])]


def test_what_was_not_handed_out_is_not_suspect(crawl):
    """Of all that a dead worker had claimed, only what its engine had is charged with its death."""
    for name in "ABC":
        crawl.work(name)
    dying = crawl.new_worker(timedelta(seconds=-1))
    claims = crawl.claim(worker=dying)
    first = claims[0]

    in_flight.write(crawl.connection, dying, [(first.item_id, first.task_id)])
    assert crawl.take_over() == 3

    deaths = {row.item: row.deaths for row in crawl.rows(DEATHS)}
    assert deaths == {name: int(name == first.item.id) for name in "ABC"}
    assert crawl.rows("SELECT FROM handed") == []


# Crawls


def test_crawls_are_namespaces(connection):
    """Two crawls in one database share neither names, nor tasks, nor work."""
    one, two = graphs.Crawl(connection, "one"), graphs.Crawl(connection, "two")
    for crawl in (one, two):
        crawl.register(**PARSE)
        crawl.work("A", data={"crawl": crawl.name})

    one.done("A")

    assert one.get("A").data == {"crawl": "one"}
    assert two.get("A").data == {"crawl": "two"}
    assert (one.worklist(), two.worklist()) == ([], ["A parse"])


def test_results_expire_by_the_clock(connection):
    """SRAP-24: results expire at their task's next time of the day; an own TTL overrides that."""
    crawl = graphs.Crawl.of(
        connection, parse={"tags": ["page"], "at": "03:00", "time_zone": "Asia/Kathmandu"}
    )
    crawl.done("A")
    crawl.done("B", SetTTL("9d"))
    made = crawl.result("A")
    expires_at = made.expires_at.astimezone(ZoneInfo("Asia/Kathmandu"))

    (found,) = explain.explain(connection, crawl.id, crawl.item_id("A"))
    crawl.age(days=1)
    crawl.stage()

    assert (expires_at.hour, expires_at.minute, expires_at.second) == (3, 0, 0)
    assert timedelta() < expires_at - made.completed_at <= timedelta(days=1)
    assert f"it expires at {expires_at:%Y-%m-%d} 03:00 Asia/Kathmandu by its schedule" in " ".join(
        found.reasons
    )
    assert (crawl.state("A"), crawl.state("B")) == ("stale", "fresh")


def test_a_schedule_changed_in_code_is_recomputed(connection):
    """A recompute goes by the schedule that the code declares, and back to a time to live."""
    crawl = graphs.Crawl.of(connection, parse={"tags": ["page"], "ttl": "1h"})
    task = crawl.task_id("parse")
    crawl.done("A")
    completed_at = crawl.result("A").completed_at
    crawl.register(parse={"tags": ["page"], "every": "7d", "spread": "1h"})
    scheduled = crawl.registration.changed

    counts = [crawl_changes.recompute_ttl(connection, crawl.id, task) for _ in range(2)]
    found = crawl.result("A").expires_at
    listed = status.tasks(connection, crawl.id)[0]
    crawl.register(parse={"tags": ["page"]})
    crawl_changes.recompute_ttl(connection, crawl.id, task)

    expiry = Expiry.read({"every": "7d"}, spread="1h")
    assert scheduled == ("parse",)
    assert found == expiry.next_due(completed_at, crawl.item_id("A"))
    assert counts == [1, 0]
    assert (listed.ttl, listed.schedule) == (None, {"every": "7d", "spread": "1h"})
    assert crawl.result("A").expires_at is None
