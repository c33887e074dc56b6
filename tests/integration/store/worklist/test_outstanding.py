"""What is outstanding, in what order, and what waits for what."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support import graphs, oracle
from support.worklists import claimed

from scrapy_itemgraph import AddTag, CreateItem, Expire, RemoveTag, UpdateData
from scrapy_itemgraph.model.work import Outcome

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


def test_a_claim_over_several_websites_leaves_nothing_better_of_one_behind(crawl):
    """Where another website has less than its share, more of this one is taken in order (inv. 3).

    Of each task as much is looked at as the website's share; work of another task that is behind
    all of that is not taken, for there may be better that was not looked at.
    """
    crawl.register(price={"tags": ["page"]}, review={"tags": ["page"], "nice": 5})
    for site, count in (("a", 5), ("b", 1)):
        for number in range(count):
            url = {"url": f"http://{site}.example/{number}"}
            crawl.do(CreateItem(f"{site}{number}", ["page"], url))

    first = claimed(crawl, 6)
    rest = [pair for _ in range(4) for pair in claimed(crawl, 6)]

    of_a = [pair for pair in [*first, *rest] if pair.startswith("a")]
    tasks = [pair.partition(" ")[2] for pair in of_a]
    assert tasks == ["price"] * 5 + ["review"] * 5
    assert len([*first, *rest]) == 12


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

    taken = [pair for _ in range(6) for pair in claimed(crawl, 1)]

    # Which slot begins is a matter of the server's clock, and the clock of a machine is set back.
    assert [sorted(pairs) for pairs in zip(taken[::2], taken[1::2], strict=True)] == [
        [f"{slot}{number} parse" for slot in "ab"] for number in range(3)
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
