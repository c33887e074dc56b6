"""What is outstanding, in which order it is claimed, and what code changes make of it."""

from __future__ import annotations

from datetime import timedelta

import graphs
import oracle
import pytest

from scrapy_itemgraph import AddTag, CreateItem, Expire, RemoveTag, SetTTL, UpdateData
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store import engine_work
from scrapy_itemgraph.store.admin import crawl_reports, status
from scrapy_itemgraph.store.registry import sweeps
from scrapy_itemgraph.store.registry import tasks as stored_tasks
from scrapy_itemgraph.store.worklist import claims, timers

DEATHS = "SELECT i.name AS item, w.deaths FROM work w JOIN items i ON i.id = w.item_id"
PARSE = {"parse": {"tags": ["page"]}}


@pytest.fixture
def crawl(connection):
    """Yield a crawl with one task, and check its worklist at the end."""
    crawl = graphs.Crawl.of(connection)
    yield crawl
    oracle.assert_worklist_is_true(connection, crawl.id)


def claimed(crawl, limit=1000):
    """Claim, and return what was claimed as "item task"."""
    return [f"{claim.item.id} {claim.task}" for claim in crawl.claim(limit)]


# What is outstanding


def test_what_a_tag_calls_for_and_has_no_result_is_outstanding(crawl):
    """SRAP-15: a pair is outstanding when a tag of its item calls for its task and it never ran."""
    crawl.item("A", tags=["page", "other"])
    crawl.item("B", tags=["other"])
    crawl.item("C")

    assert crawl.worklist() == ["A parse"]


def test_two_tags_that_call_for_one_task_run_it_once(crawl):
    """SRAP-14: results belong to the item, so a task that two tags call for runs once."""
    crawl.register(parse={"tags": ["page", "book"]})
    crawl.item("A", tags=["page", "book"])
    listed = crawl.worklist()

    crawl.done("A")
    crawl.do(RemoveTag("page", id="A"))

    assert listed == ["A parse"]
    assert crawl.worklist() == []


def test_a_result_without_an_expiry_never_expires(crawl):
    """SRAP-15: without a TTL a result stays fresh for ever."""
    crawl.done("A")

    crawl.age(days=36_500)

    assert crawl.worklist() == []


def test_a_result_expires_by_its_ttl(crawl):
    """SRAP-15, SRAP-23: once its time to live is over, a result is called for again."""
    crawl.register(parse={"tags": ["page"], "ttl": "1d"})
    crawl.done("A")

    crawl.age(hours=23)
    before = crawl.worklist()
    crawl.age(hours=2)

    assert before == []
    assert crawl.worklist() == ["A parse"]
    assert crawl.result("A").is_successful


def test_a_result_without_a_ttl_of_its_task_has_the_default(crawl):
    """SRAP-23: a task's TTL left out is the project's default; "never" is not."""
    crawl.register(
        default_ttl=timedelta(hours=1),
        parse={"tags": ["page"]},
        price={"tags": ["page"], "ttl": "never"},
    )
    crawl.done("A")
    crawl.done("A", task="price")

    crawl.age(hours=2)

    assert (crawl.state("A"), crawl.state("A", "price")) == ("stale", "fresh")


def test_claimed_work_is_not_listed_but_other_tasks_of_its_item_are(crawl):
    """SRAP-17, SRAP-11: what is in progress is excluded by item and task, not by item alone."""
    crawl.register(parse={"tags": ["page"]}, price={"tags": ["page"]})

    crawl.claimed("A", "parse")

    assert crawl.worklist() == ["A price"]
    assert claimed(crawl) == ["A price"]
    assert claimed(crawl) == []


def test_an_exclusive_task_has_its_item_for_itself(crawl):
    """SRAP-17: with exclusive="item" a task runs beside no other of its item."""
    crawl.register(
        alone={"tags": ["page"], "exclusive": "item", "nice": -1},
        parse={"tags": ["page"]},
        price={"tags": ["page"]},
    )
    crawl.work("A")

    first = crawl.claim(1)
    beside = claimed(crawl)
    crawl.end(first[0])
    after = claimed(crawl)

    assert first[0].task == "alone"
    assert beside == []
    assert after == ["A parse", "A price"]


def test_work_that_waits_for_an_exclusive_task_does_not_stand_before_other_work(crawl):
    """SRAP-17: what may not run beside claims is passed over, so that claims are full."""
    crawl.register(first={"tags": ["page"], "exclusive": "item"}, second={"tags": ["page"]})
    url = {"url": f"http://{graphs.SLOT}/"}
    crawl.do(*(CreateItem(f"{number}", ["page"], url) for number in range(300)))

    claims = [crawl.claim(25) for _ in range(13)]

    assert [len(taken) for taken in claims] == [25] * 12 + [0]
    assert len({claim.item_id for taken in claims for claim in taken}) == 300


def test_a_failed_pair_is_held_until_it_is_handled(crawl):
    """SRAP-18, SRAP-29: a failure keeps its pair off the worklist until somebody handles it."""
    crawl.failed("A")
    held = crawl.worklist()

    count = crawl.handle()

    assert held == []
    assert count == 1
    assert crawl.failures() == []
    assert crawl.worklist() == ["A parse"]


def test_a_held_pair_stays_held_when_its_result_expires_or_its_version_changes(crawl):
    """SRAP-18: neither time nor a version bump retries a failure."""
    crawl.register(parse={"tags": ["page"], "ttl": "1d"})
    crawl.done("A")
    crawl.age(days=2)
    crawl.failed("A")

    crawl.age(days=2)
    crawl.register(parse={"tags": ["page"], "version": "2"})

    assert crawl.worklist() == []
    assert crawl.state("A") == "held"


def test_a_failure_can_be_handled_without_a_retry(crawl):
    """SRAP-29: handled with --no-retry, the failure is closed and the pair stays held."""
    crawl.failed("A")

    crawl.handle(retry=False)

    assert crawl.failures() == []
    assert crawl.state("A") == "held"
    assert crawl.worklist() == []


def test_failures_are_handled_by_task(crawl):
    """SRAP-29: all failures of one task are handled at once, those of others stay."""
    crawl.register(parse={"tags": ["page"]}, price={"tags": ["page"]})
    for name in "AB":
        crawl.failed(name)
    crawl.failed("A", "price")

    count = crawl.handle("parse")

    assert count == 2
    assert crawl.failures() == ["A"]
    assert crawl.worklist() == ["B price", "A parse", "B parse"]


def test_a_refusal_is_held_and_listed_apart(crawl):
    """SRAP-18: refused work (robots, offsite) is held, and its failure is marked as a refusal."""
    claim = crawl.claimed("A")

    crawl.end(claim, outcome=Outcome.REFUSED)

    assert crawl.state("A") == "held"
    assert crawl.attempts("A") == ["refused"]
    (row,) = crawl.rows("SELECT is_refusal FROM failures")
    assert row.is_refusal


# The order


def test_unprocessed_before_stale_then_nice_then_first_in(crawl):
    """SRAP-16: what never ran goes first, then by nice, then first in first out."""
    crawl.done("stale", nice=-9)
    crawl.do(Expire(id="stale"))
    for name, nice in (("later", None), ("last", None), ("worse", 3), ("better", -3)):
        crawl.work(name, nice=nice)

    expected = [f"{name} parse" for name in ("better", "later", "last", "worse", "stale")]
    assert crawl.worklist() == expected
    assert claimed(crawl) == expected


def test_the_nice_of_an_item_goes_before_that_of_its_task(crawl):
    """SRAP-22: nice orders tasks; without it or dependencies their order is not promised."""
    crawl.register(parse={"tags": ["page"], "nice": 5}, price={"tags": ["page"], "nice": -5})
    url = {"url": "http://a.example/"}
    crawl.do(CreateItem("A", ["page"], url), CreateItem("B", ["page"], url, nice=-9))

    order = claimed(crawl)

    assert order == ["B parse", "B price", "A price", "A parse"]


def test_work_given_back_keeps_its_place(crawl):
    """A clean release puts work back where it stood, with its tries."""
    for name in "ABC":
        crawl.work(name)

    crawl.release(*crawl.claim(2))
    order = crawl.claim()

    assert [claim.item.id for claim in order] == ["A", "B", "C"]
    assert [claim.attempt for claim in order] == [1, 1, 1]


def test_a_retry_waits_and_counts(crawl):
    """A retryable error takes the token off, counts a try, and waits for its backoff."""
    claim = crawl.claimed("A")

    crawl.end(claim, outcome=Outcome.RETRY, delay=timedelta(minutes=1))
    waiting = claimed(crawl)
    crawl.age(minutes=2)
    (again,) = crawl.claim()

    assert waiting == []
    assert crawl.failures() == []
    assert crawl.attempts("A") == ["retry"]
    assert (claim.attempt, again.attempt) == (1, 2)


def test_queues_take_turns(crawl):
    """One claim takes from all slots in turn, and in each the first first."""
    for slot in ("a", "b", "c"):
        for number in range(3):
            crawl.work(f"{slot}{number}", data={"url": f"http://{slot}.example/{number}"})

    first, second = claimed(crawl, 3), claimed(crawl, 6)

    assert sorted(first) == ["a0 parse", "b0 parse", "c0 parse"]
    assert sorted(second[:3]) == ["a1 parse", "b1 parse", "c1 parse"]
    assert sorted(second[3:]) == ["a2 parse", "b2 parse", "c2 parse"]


def test_a_claim_smaller_than_the_number_of_queues_comes_round(crawl):
    """With more slots than a claim takes, the next claim goes on with the others."""
    for slot in "abcde":
        crawl.work(slot, data={"url": f"http://{slot}.example/"})

    taken = [claimed(crawl, 2), claimed(crawl, 2), claimed(crawl, 2)]

    assert sorted(pair for claims in taken for pair in claims) == [
        f"{slot} parse" for slot in "abcde"
    ]
    assert [len(claims) for claims in taken] == [2, 2, 1]


def test_claims_of_one_piece_go_round_the_queues(crawl):
    """With ITEMGRAPH_CLAIM_BATCH = 1 the slots take turns all the same."""
    for slot in "ab":
        for number in range(3):
            crawl.work(f"{slot}{number}", data={"url": f"http://{slot}.example/{number}"})

    taken = [claimed(crawl, 1) for _ in range(6)]

    assert [pair for claims in taken for pair in claims] == [
        f"{slot}{number} parse" for number in range(3) for slot in "ab"
    ]


def test_a_queue_of_a_stopped_task_does_not_stand_before_others(crawl):
    """With ITEMGRAPH_CLAIM_BATCH = 1 a queue where nothing may be claimed loses its turn."""
    crawl.register(bad={"tags": ["bad"], "max_failures": 1}, good={"tags": ["good"]})
    for name in "AB":
        crawl.work(name, tags=["bad"], data={"url": "http://bad.example/"})
    crawl.failed("A", "bad")
    crawl.work("C", tags=["good"], data={"url": "http://good.example/"})

    assert claimed(crawl, 1) == ["C good"]


def test_a_host_too_long_to_be_one_is_no_slot(crawl):
    """Of 256 bytes on, a host or a download slot counts as none."""
    crawl.work("A", data={"url": f"http://{'x' * 6000}/"})
    crawl.work("B", data={"download_slot": "é" * 128})
    crawl.work("C", data={"download_slot": "x" * 255})

    assert {claim.item.id: claim.slot for claim in crawl.claim()} == {
        "A": "",
        "B": "",
        "C": "x" * 255,
    }


def test_work_moves_when_its_items_slot_changes(crawl):
    """Unclaimed work goes to the queue of its item's present URL, claimed work when it is back."""
    crawl.work("A")
    claim = crawl.claimed("B")

    crawl.do(*(UpdateData({"url": "http://new.example/"}, id=name) for name in "AB"))
    crawl.release(claim)

    assert {one.slot for one in crawl.claim()} == {"new.example"}


def test_a_task_may_fix_its_slot_or_need_none(crawl):
    """Work stands in the slot of its item, or in that which its task says, or in none."""
    crawl.register(
        parse={"tags": ["page"]},
        api={"tags": ["page"], "slot": "api.example"},
        count={"tags": ["page"], "download": False},
    )
    crawl.work("A")

    assert {one.task: one.slot for one in crawl.claim()} == {
        "parse": graphs.SLOT,
        "api": "api.example",
        "count": "",
    }


# Dependencies


@pytest.fixture
def dependent(connection):
    """Yield a crawl where `review` depends on `parse`; check its worklist at the end."""
    crawl = graphs.Crawl.of(
        connection,
        parse={"tags": ["page"], "ttl": "1d"},
        review={"tags": ["page"], "depends_on": ["parse"]},
    )
    yield crawl
    oracle.assert_worklist_is_true(connection, crawl.id)


def test_a_task_waits_for_its_dependency(dependent):
    """SRAP-21: a task is eligible once its dependency has a fresh result of the same item."""
    dependent.work("A")
    dependent.work("B")
    before = dependent.worklist()

    dependent.done("A")

    assert before == ["A parse", "B parse"]
    assert dependent.worklist() == ["B parse", "A review"]


@pytest.mark.parametrize("cause", ["expired", "aged", "failed", "allowed to fail", "bumped"])
def test_a_task_waits_while_its_dependency_is_not_fresh(dependent, cause):
    """SRAP-21: a dependency that is stale, held or of another version keeps its dependents back."""
    dependent.done("A")
    ready = dependent.worklist()

    if cause == "expired":
        dependent.do(Expire(id="A", task="parse"))
    elif cause == "aged":
        dependent.age(days=2)
    elif cause == "failed":
        dependent.do(Expire(id="A", task="parse"))
        dependent.failed("A")
    elif cause == "allowed to fail":
        dependent.do(Expire(id="A", task="parse"))
        claim = dependent.claimed("A")
        dependent.end(claim, outcome=Outcome.FAILED, allow_failure=True)
    else:
        dependent.register(
            parse={"tags": ["page"], "version": "2"},
            review={"tags": ["page"], "depends_on": ["parse"]},
        )

    assert ready == ["A review"]
    assert dependent.worklist() == ([] if "fail" in cause else ["A parse"])
    assert dependent.state("A", "review") == "never run"


def test_a_dependency_that_is_never_called_for_is_never_satisfied(connection):
    """SRAP-21: where an item lacks the tag of the dependency, its missing result blocks."""
    crawl = graphs.Crawl.of(
        connection, parse={"tags": ["page"]}, review={"tags": ["book"], "depends_on": ["parse"]}
    )

    crawl.item("A", tags=["book"])
    before = crawl.worklist()
    crawl.do(AddTag("page", id="A"))
    crawl.done("A")

    assert before == []
    assert crawl.worklist() == ["A review"]


def test_a_fresh_dependent_does_not_run_again_when_its_dependency_does(dependent):
    """SRAP-21: a dependency says when a task may run, not that it must."""
    dependent.done("A")
    dependent.done("A", task="review")

    dependent.age(days=2)
    dependent.done("A")

    assert dependent.worklist() == []


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
    assert stored_tasks.redefined(crawl.connection, old.tasks) == {"parse"}


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


@pytest.mark.parametrize("crashed", [False, True])
def test_a_new_task_reaches_the_items_that_carry_its_tag_already(crawl, monkeypatch, crashed):
    """A sweep in steps takes a code change up; after a crash the next worker goes on with it."""
    monkeypatch.setattr(sweeps, "SWEEP_STEP", 2)
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
            sweeps.sweep(crawl.connection, crawl.id)
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
    staged = [timers.stage_results(crawl.connection, crawl.id, until) for _ in range(2)]

    assert swept == 100
    assert staged == [100, 1]


def test_what_a_tag_no_longer_calls_for_leaves_the_worklist(crawl, monkeypatch):
    """A task that lost a tag is withdrawn from unclaimed items; claimed work finishes."""
    monkeypatch.setattr(sweeps, "SWEEP_STEP", 2)
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

    (row,) = status.worklist(crawl.connection, crawl.id, task=None, limit=10)
    assert (row.nice, row.slot) == (-7, "api.example")


def test_a_ttl_changed_in_code_is_for_new_results_until_it_is_recomputed(crawl):
    """SRAP-24: old results keep their expiry; a recompute changes all but overridden ones."""
    crawl.done("A")
    crawl.done("B", SetTTL("9d"))
    crawl.register(parse={"tags": ["page"], "ttl": "1h"})
    before = crawl.result("A").expires_at

    changed = crawl_reports.recompute_ttl(crawl.connection, crawl.id, crawl.task_id("parse"))
    crawl.sweep()
    crawl.age(hours=2)

    assert before is None
    assert changed == 1
    assert (crawl.state("A"), crawl.state("B")) == ("stale", "fresh")
    assert crawl.worklist() == ["A parse"]


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

    counts = sweeps.rename_tags(crawl.connection, {"page": "book"})
    crawl.sweep()

    assert counts == {"page": 1}
    assert crawl.get("A").tags == {"book": 5}
    assert crawl.get("B").tags == {"other": 1}
    assert crawl.worklist() == ["A read"]


def test_a_renamed_tag_merges_into_one_that_is_there(crawl):
    """SRAP-32: where an item has both tags, the one of the new name stays as it is."""
    crawl.item("A", tags={"old": 1, "page": 2})
    crawl.item("B", tags={"old": 3})

    sweeps.rename_tags(crawl.connection, {"old": "page"})
    crawl.sweep()

    assert crawl.get("A").tags == {"page": 2}
    assert crawl.get("B").tags == {"page": 3}
    assert crawl.worklist() == ["A parse", "B parse"]


def test_a_tag_rename_can_be_applied_again_and_again(crawl):
    """SRAP-32: applied at each start, a rename finds nothing the second time, nor one to itself."""
    crawl.item("A", tags=["old"])
    renames = {"old": "page", "page": "page"}
    sweeps.rename_tags(crawl.connection, renames)

    counts = sweeps.rename_tags(crawl.connection, renames)
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


def test_what_was_not_handed_out_is_not_suspect(crawl):
    """Of all that a dead worker had claimed, only what its engine had is charged with its death."""
    for name in "ABC":
        crawl.work(name)
    dying = crawl.new_worker(timedelta(seconds=-1))
    claims = crawl.claim(worker=dying)
    first = claims[0]

    engine_work.write(crawl.connection, dying, [(first.item_id, first.task_id)])
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
