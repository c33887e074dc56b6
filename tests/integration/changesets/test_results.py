"""Results: metadata, expiry, times to live, failures that are allowed."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from support import graphs, oracle

from scrapy_itemgraph import (
    CreateItem,
    Expire,
    RenameItem,
    SetTTL,
    StoreResult,
    UpdateData,
    UpdateMetadata,
)
from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.model.work import ErrorRecord, Outcome

DAY = timedelta(days=1)


@pytest.fixture
def crawl(connection):
    """Yield a crawl with `parse` (a day) and `price` (for ever); check its worklist at the end."""
    crawl = graphs.Crawl.of(
        connection, parse={"tags": ["page"], "ttl": "1d"}, price={"tags": ["page"]}
    )
    yield crawl
    oracle.assert_worklist_is_true(connection, crawl.id)


def lifetime(crawl, name="A", task="parse"):
    """Return how long a result lives from its own time; None: for ever."""
    result = crawl.result(name, task)
    return result.expires_at and result.expires_at - result.completed_at


# Success


def test_ten_attempts_of_a_pair_are_kept(crawl):
    """The history of a pair that runs for ever has its last ten attempts, and no others'."""
    crawl.done("A", task="price")
    made = []
    for _ in range(12):
        crawl.done("A")
        made += crawl.rows("SELECT max(id) FROM attempts")
        crawl.do(Expire(id="A", task="parse"))

    kept = crawl.rows("SELECT t.name, a.id FROM attempts a JOIN tasks t ON t.id = a.task_id")
    assert sorted(row.id for row in kept if row.name == "parse") == [row.max for row in made[-10:]]
    assert [row.name for row in kept].count("price") == 1


def test_a_success_stores_a_result(crawl):
    """SRAP-10: a result has metadata, the version it was claimed with, success and its times."""
    claim = crawl.claimed("A")

    crawl.end(claim, UpdateMetadata({"price": 5}))

    result = crawl.result("A")
    assert result.metadata == {"price": 5}
    assert (result.version, result.is_successful, result.is_held) == ("1", True, False)
    assert not result.is_invalidated
    assert result.completed_at is not None
    assert lifetime(crawl) == DAY
    assert crawl.attempts("A") == ["released", "ok"]


def test_a_success_without_metadata_keeps_what_there_was(crawl):
    """SRAP-55: metadata is replaced when it is yielded, and kept when it is not."""
    crawl.done("A", UpdateMetadata({"n": 1}))
    crawl.age(days=2)

    crawl.done("A")

    assert crawl.result("A").metadata == {"n": 1}
    assert crawl.state("A") == "fresh"


def test_metadata_is_laid_over_the_old_and_no_version_of_it_is_kept(crawl):
    """SRAP-55: metadata is updated in place; its callback gets what there was, expired or not."""
    crawl.done("A", UpdateMetadata({"seen": [1], "n": 1}))
    crawl.age(days=2)
    old = []

    crawl.done("A", UpdateMetadata(lambda had: old.append(had) or {"seen": [*had["seen"], 2]}))

    assert old == [{"seen": [1], "n": 1}]
    assert crawl.result("A").metadata == {"seen": [1, 2]}


def test_the_callback_is_called_with_an_empty_dict_when_there_is_nothing(crawl):
    """SRAP-49: the merge of metadata is always called, with {} if there is none."""
    old = []

    crawl.done("A", UpdateMetadata(lambda had: old.append(had) or {"n": 1}))

    assert old == [{}]


# Another task's metadata


def test_updating_another_tasks_metadata_leaves_its_times_alone(crawl):
    """SRAP-49: UpdateMetadata of another task never resets its TTL, and a stale one stays stale."""
    crawl.done("A", UpdateMetadata({"n": 1}))
    before = crawl.result("A")
    crawl.done("A", UpdateMetadata({"n": 2}, task="parse"), task="price")
    after = crawl.result("A")
    crawl.do(Expire(id="A", task="parse"))
    crawl.do(UpdateMetadata({"n": 3}, id="A", task="parse"))

    assert after.metadata == {"n": 2}
    assert (after.completed_at, after.expires_at) == (before.completed_at, before.expires_at)
    assert crawl.result("A").metadata == {"n": 3}
    assert crawl.state("A") == "stale"


def test_metadata_of_a_task_that_never_ran_leaves_it_to_run(crawl):
    """SRAP-49: metadata of a task without a result makes one that never ran, so it still runs."""
    crawl.work("A")

    crawl.do(UpdateMetadata({"n": 1}, id="A", task="parse"))

    assert crawl.result("A").completed_at is None
    assert crawl.state("A") == "never run"
    assert crawl.worklist() == ["A parse", "A price"]


@pytest.mark.parametrize(
    ("operation", "what_is_wrong"),
    [
        (UpdateMetadata({}, id="A", task="prise"), "no task 'prise'; did you mean 'price'?"),
        (UpdateMetadata({}, id="A"), "task must be given outside an execution"),
        (StoreResult({}, id="A", task="prise"), "no task 'prise'; did you mean 'price'?"),
        (StoreResult({}, id="nobody", task="parse"), "there is no item 'nobody'"),
        (Expire(id="A", task="prise"), "no task 'prise'; did you mean 'price'?"),
        (Expire(), "id must be given outside an execution"),
        (SetTTL("1h", id="A", task="prise"), "no task 'prise'; did you mean 'price'?"),
    ],
)
def test_an_unknown_task_or_item_is_an_error_with_a_hint(crawl, operation, what_is_wrong):
    """An operation that names no task in force, or no item, says which one is near."""
    crawl.item("A")

    assert what_is_wrong in crawl.refused(operation)


# Storing results


def test_a_stored_result_is_as_if_the_task_had_run(crawl):
    """SRAP-57: StoreResult replaces the metadata and completes the pair, version in force."""
    crawl.work("A")
    crawl.do(UpdateMetadata({"old": 1}, id="A", task="parse"))

    crawl.do(StoreResult({"n": 1}, id="A", task="parse"))

    assert crawl.result("A").metadata == {"n": 1}
    assert crawl.state("A") == "fresh"
    assert lifetime(crawl) == DAY
    assert crawl.worklist() == ["A price"]


def test_a_stored_result_handles_failures(crawl):
    """SRAP-57: as a success does, a stored result ends a failure."""
    crawl.failed("A")

    crawl.do(StoreResult({}, id="A", task="parse"))

    assert crawl.state("A") == "fresh"
    assert crawl.failures() == []


def test_whoever_has_the_claim_overwrites_a_stored_result(crawl):
    """SRAP-57: a result stored for a pair claimed elsewhere is overwritten by that commit."""
    claim = crawl.claimed("A")

    crawl.do(StoreResult({"n": 1, "m": 1}, id="A", task="parse"))
    crawl.end(claim, UpdateMetadata({"n": 2}))

    assert crawl.result("A").metadata == {"n": 2, "m": 1}


def test_an_execution_stores_results_for_others(crawl):
    """SRAP-57: one page may give the results of many items."""
    crawl.work("B")

    crawl.done("A", StoreResult({"n": 1}, id="B", task="price"))

    assert crawl.state("B", "price") == "fresh"
    assert crawl.worklist() == ["B parse", "A price"]


# Expiring


def test_expire_makes_a_result_stale(crawl):
    """SRAP-50, SRAP-23: an expired result is called for again, and keeps its metadata."""
    crawl.done("A", UpdateMetadata({"n": 1}))

    crawl.do(Expire(id="A", task="parse"))

    assert crawl.state("A") == "stale"
    assert crawl.result("A").metadata == {"n": 1}
    assert crawl.worklist() == ["A price", "A parse"]


def test_outside_an_execution_expire_means_all_tasks_of_the_item(crawl):
    """SRAP-50: from outside and without a task, every result of the item is expired."""
    crawl.done("A")
    crawl.done("A", task="price")

    crawl.do(Expire(id="A"))

    assert (crawl.state("A"), crawl.state("A", "price")) == ("stale", "stale")


def test_inside_an_execution_expire_means_its_own_task(crawl):
    """SRAP-50: in an execution and without a task, the execution's task is meant, of any item."""
    crawl.done("B")
    crawl.done("B", task="price")

    crawl.done("A", Expire(id="B"))

    assert (crawl.state("B"), crawl.state("B", "price")) == ("stale", "fresh")


def test_expire_of_what_never_ran_is_nothing(crawl):
    """SRAP-50: where there is no result there is nothing to expire."""
    crawl.work("A")

    crawl.do(Expire(id="A"), Expire(id="A", task="parse"))

    assert crawl.result("A") is None
    assert crawl.state("A") == "never run"


def test_expire_spares_what_is_not_older_than_said(crawl):
    """A hint of a website, with its moment or an age, makes stale what was completed before it."""
    for name in ("old", "new", "failed", "waits"):
        crawl.work(name)
    crawl.done("old")
    crawl.age(days=0.5)
    crawl.done("new")
    crawl.failed("failed")
    moment = crawl.result("new").completed_at

    for age in (moment, timedelta(hours=6), "6h", 6 * 3600):
        crawl.do(*(Expire(id=one, if_older_than=age) for one in ("new", "failed", "waits")))
        assert crawl.state("new") == "fresh"
        assert crawl.state("failed") == "held"
        crawl.do(Expire(id="old", task="parse", if_older_than=age))
        assert crawl.state("old") == "stale"
        crawl.done("old")
        crawl.do(Expire(id="old", if_older_than=age))
        assert crawl.state("old") == "fresh"
        crawl.age(days=0.5)
        crawl.do(StoreResult(id="new", task="parse", metadata={}))


def test_a_hint_that_comes_twice_has_a_page_looked_at_once(crawl):
    """The page that is fetched for the first one is fresh when it is done, and the log is true."""
    crawl.done("A")
    moment = crawl.result("A").completed_at + timedelta(hours=1)
    crawl.age(days=0.5)
    hint = Expire(id="A", task="parse", if_older_than=moment - timedelta(hours=12))
    noted = [len(crawl.do(hint)), len(crawl.do(hint))]
    claim = crawl.claimed("A", "parse")
    noted.append(len(crawl.do(hint)))
    crawl.end(claim)

    assert crawl.state("A") == "fresh"
    assert noted == [1, 0, 0]


def test_the_last_attempt_that_is_left_is_not_counted_away(crawl):
    """A retry that nobody judged by it leaves it, or the run would not wait for the work."""
    crawl.work("A")
    waits = graphs.changeset(crawl.claimed("A"), outcome=Outcome.RETRY, delay=DAY)
    crawl.commit(replace(waits, attempts_left=1))
    crawl.age(days=2)
    claim = crawl.claimed("A")
    crawl.end(claim, outcome=Outcome.RETRY, delay=DAY)

    assert claim.attempts_left == 1
    assert crawl.rows("SELECT tries FROM work WHERE not_before IS NOT NULL") == [(-1,)]


@pytest.mark.parametrize(
    ("age", "said"),
    [
        ("soon", "if_older_than is 'soon'; write "),
        (0, "if_older_than is 0; write "),
        (datetime(2026, 1, 1), "a datetime with a time zone"),  # noqa: DTZ001 - the mistake
    ],
)
def test_an_age_that_is_none_is_refused(crawl, age, said):
    """The error says what to write."""
    with pytest.raises(OperationError, match=re.escape(said)):
        crawl.do(Expire(id="A", if_older_than=age))


def test_expire_is_the_explicit_retry_of_a_failure(crawl):
    """SRAP-50, SRAP-18: an expired failed pair is not held any more, and its failure is handled."""
    crawl.failed("A")
    crawl.done("B")
    crawl.age(days=2)
    crawl.failed("B")

    crawl.do(Expire(id="A", task="parse"), Expire(id="B", task="parse"))

    assert (crawl.state("A"), crawl.state("B")) == ("never run", "stale")
    assert crawl.failures() == []
    assert "A parse" in crawl.worklist()
    assert "B parse" in crawl.worklist()


@pytest.mark.parametrize("has_run", [False, True])
def test_an_execution_that_expires_itself_runs_again(crawl, has_run):
    """SRAP-50, SRAP-56: an execution's own Expire leaves its new result stale, behind new work."""
    if has_run:
        crawl.done("A")
        crawl.age(days=2)
    crawl.done("A", Expire(), CreateItem("B", ["page"]))

    assert crawl.state("A") == "stale"
    assert crawl.result("A").is_successful
    assert crawl.worklist() == ["A price", "B parse", "B price", "A parse"]


@pytest.mark.parametrize("task", ["parse", None])
@pytest.mark.parametrize("has_run", [False, True])
def test_what_is_expired_while_it_is_claimed_runs_again(crawl, has_run, task):
    """SRAP-50: claimed elsewhere, the commit that ends the claim leaves the pair invalidated."""
    if has_run:
        crawl.done("A")
        crawl.age(days=2)
    claim = crawl.claimed("A")

    crawl.do(Expire(id="A", task=task))
    crawl.end(claim)

    assert crawl.state("A") == "stale"
    assert "A parse" in crawl.worklist()


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.REFUSED])
@pytest.mark.parametrize("allow_failure", [False, True])
@pytest.mark.parametrize("has_run", [False, True])
def test_what_is_expired_while_it_is_claimed_runs_again_though_it_fails(
    crawl, has_run, allow_failure, outcome
):
    """SRAP-50: the failure is of before the Expire, which handles it; one after it is held."""
    if has_run:
        crawl.done("A")
        crawl.age(days=2)
    claim = crawl.claimed("A")
    failed = {"outcome": outcome, "error": graphs.ERROR, "allow_failure": allow_failure}

    crawl.do(Expire(id="A", task="parse"))
    crawl.end(claim, **failed)

    assert crawl.failures() == []
    assert crawl.attempts("A")[-1].endswith(str(outcome))
    assert not crawl.result("A").is_successful
    assert "A parse" in crawl.worklist()

    crawl.end(crawl.claim_pair("A"), **failed)

    assert crawl.state("A") == "held"
    assert len(crawl.failures()) == 1


def test_what_is_expired_in_the_batch_that_ends_its_claim_runs_again(crawl):
    """SRAP-50: an Expire that is carried out before the claim's own end in one batch counts too."""
    crawl.work("A")
    other, claim = crawl.claimed("B"), crawl.claim_pair("A")

    crawl.commit(graphs.changeset(other, Expire(id="A")), graphs.changeset(claim))

    assert crawl.state("A") == "stale"


def test_what_was_expired_before_it_was_claimed_is_done_by_the_claim(crawl):
    """SRAP-50: an Expire before the claim is what the claim answers."""
    crawl.done("A")
    crawl.do(Expire(id="A"))

    crawl.done("A")

    assert crawl.state("A") == "fresh"


def test_discovery_expires_another_tasks_result(crawl):
    """SRAP-56: a task that finds another's result gone stale expires it for the same item."""
    crawl.done("A")

    crawl.done("A", Expire(task="parse"), task="price")

    assert crawl.state("A") == "stale"


# Times to live


def test_a_ttl_counts_from_the_results_own_time(crawl):
    """SRAP-51: SetTTL is computed from when the result was completed, not from now."""
    crawl.done("A")
    crawl.age(hours=10)

    crawl.do(SetTTL("12h", id="A", task="parse"))

    assert lifetime(crawl) == timedelta(hours=12)
    crawl.age(hours=3)
    assert crawl.state("A") == "stale"


def test_a_ttl_of_an_execution_is_that_of_the_result_it_makes(crawl):
    """SRAP-51: for the running task SetTTL means the pending result."""
    crawl.done("A", SetTTL("1h"))

    assert lifetime(crawl) == timedelta(hours=1)


def test_an_own_ttl_goes_with_a_rename_and_a_merge(crawl):
    """SRAP-51: the pending result's TTL is that of the item which survives the execution."""
    crawl.item("B")

    crawl.done("A", SetTTL("1h"), RenameItem("B", if_taken="merge"))

    assert lifetime(crawl, "B") == timedelta(hours=1)


@pytest.mark.parametrize(("ttl", "expected"), [("never", None), (None, DAY), (90, None)])
def test_a_ttl_can_be_never_or_the_tasks_again(crawl, ttl, expected):
    """SRAP-51: "never" keeps a result for ever, None gives back the task's own TTL."""
    crawl.done("A")
    crawl.do(SetTTL("1h", id="A", task="parse"))

    crawl.do(SetTTL(ttl, id="A", task="parse"))

    assert lifetime(crawl) == (timedelta(seconds=ttl) if ttl == 90 else expected)


def test_outside_an_execution_a_ttl_is_for_all_tasks_of_the_item(crawl):
    """SRAP-51: from outside and without a task, each result of the item gets the TTL."""
    crawl.done("A")
    crawl.done("A", task="price")

    crawl.do(SetTTL("1h", id="A"))

    assert lifetime(crawl) == lifetime(crawl, "A", "price") == timedelta(hours=1)


def test_a_ttl_without_a_result_is_noted_and_does_nothing(crawl):
    """SRAP-51: there is no time to count from where nothing ran; that is said, not an error."""
    crawl.work("A")

    labels = crawl.do(SetTTL("1h", id="A", task="parse"))

    assert "no result" in labels
    assert crawl.result("A") is None


def test_a_longer_ttl_makes_a_stale_result_fresh_again(crawl):
    """SRAP-51: a result that expired is fresh again when its new TTL reaches past now."""
    crawl.done("A")
    crawl.age(days=2)
    stale = crawl.state("A")

    crawl.do(SetTTL("3d", id="A", task="parse"))

    assert stale == "stale"
    assert crawl.state("A") == "fresh"
    assert crawl.worklist() == ["A price"]


def test_a_ttl_survives_until_the_next_result(crawl):
    """SRAP-51: the next success has the task's own TTL again."""
    crawl.done("A", SetTTL("1h"))
    crawl.age(hours=2)

    crawl.done("A")

    assert lifetime(crawl) == DAY


# Failures


def test_a_first_failure_makes_a_result_that_never_ran(crawl):
    """SRAP-13: a failure needs a result to point at: one is made, unsuccessful and held."""
    crawl.failed("A")

    result = crawl.result("A")
    assert (result.is_successful, result.completed_at, result.is_held) == (False, None, True)
    assert crawl.failures() == ["A"]
    (row,) = crawl.rows("SELECT error, occurred_at, handled_at FROM failures")
    assert ErrorRecord.read(row.error) == graphs.ERROR
    assert row.occurred_at is not None
    assert row.handled_at is None


def test_a_failure_clears_nothing(crawl):
    """SRAP-19: metadata, TTL and data from before a failure stay as they are."""
    crawl.done("A", UpdateMetadata({"n": 1}), SetTTL("1h"))
    before = crawl.result("A")
    crawl.do(Expire(id="A", task="parse"))

    crawl.failed("A")

    after = crawl.result("A")
    assert after.metadata == {"n": 1}
    assert (after.completed_at, after.expires_at) == (before.completed_at, before.expires_at)
    assert not after.is_successful


def test_what_a_failed_execution_yielded_is_discarded(crawl):
    """SRAP-52: by default a failure drops the operations, and is recorded."""
    claim = crawl.claimed("A", data={"n": 1})

    crawl.end(claim, UpdateData({"n": 2}), CreateItem("B"), outcome=Outcome.FAILED)

    assert crawl.get("A").data == {"n": 1}
    assert crawl.get("B") is None
    assert crawl.failures() == ["A"]


def test_an_allowed_failure_keeps_what_was_yielded_and_is_recorded_too(crawl):
    """SRAP-52: with failure allowed the operations are stored; the pair is held all the same."""
    claim = crawl.claimed("A", data={"n": 1})

    applied = crawl.end(
        claim,
        UpdateData({"n": 2}),
        UpdateMetadata({"m": 1}),
        CreateItem("B", ["page"]),
        outcome=Outcome.FAILED,
        allow_failure=True,
    )

    result = crawl.result("A")
    assert applied.outcome is Outcome.FAILED
    assert crawl.get("A").data == {"n": 2}
    assert result.metadata == {"m": 1}
    assert result.completed_at is not None
    assert (result.is_successful, crawl.state("A")) == (False, "held")
    assert crawl.failures() == ["A"]
    assert crawl.worklist() == ["A price", "B parse", "B price"]


def test_an_allowed_failure_whose_operations_fail_too_is_still_recorded(crawl):
    """SRAP-52: where even the operations cannot be carried out, none is, and the pair is held."""
    claim = crawl.claimed("A", data={"n": 1})

    applied = crawl.end(
        claim,
        UpdateData({"n": 2}),
        UpdateData({}, id="nobody"),
        outcome=Outcome.FAILED,
        allow_failure=True,
    )

    assert applied.outcome is Outcome.FAILED
    assert crawl.get("A").data == {"n": 1}
    assert crawl.failures() == ["A"]


def test_the_next_success_supersedes_open_failures(crawl):
    """SRAP-29: a success handles what failures are open, as superseded."""
    crawl.failed("A")
    crawl.handle(retry=False)
    crawl.do(Expire(id="A", task="parse"))
    crawl.failed("A")
    crawl.do(StoreResult({}, id="A", task="parse"))

    handled = crawl.rows("SELECT handled_by FROM failures ORDER BY id")

    assert [row.handled_by for row in handled] == ["a person", "superseded"]
