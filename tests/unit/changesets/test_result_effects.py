"""What operations on results do to a draft, and how an execution's own result ends, in memory."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as some

from scrapy_itemgraph import Expire, SetTTL, StoreResult, UpdateMetadata
from scrapy_itemgraph.changesets.effects import result_operations
from scrapy_itemgraph.changesets.effects.item_operations import ChangesetRun
from scrapy_itemgraph.changesets.state import Draft, Handled, Item, Result, State, TaskRow
from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.model.snapshots import ItemSnapshot
from scrapy_itemgraph.model.work import Claim

NOW = datetime(2026, 1, 2, tzinfo=UTC)
BEFORE = NOW - timedelta(hours=1)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
PARSE = TaskRow(id=1, name="parse", version="2", ttl=DAY, is_registered=True)
PRICE = TaskRow(id=2, name="price", version="1", ttl=None, is_registered=True)
ITEM, OTHER = 10, 20


def a_result(**fields):
    """Return a fresh result of an hour ago."""
    usual = {
        "version": "2",
        "metadata": {"n": 1},
        "is_successful": True,
        "completed_at": BEFORE,
        "expires_at": BEFORE + DAY,
        "due_at": BEFORE + DAY,
        "is_changed": False,
    }
    return Result(**{**usual, **fields})


def a_claim(**fields):
    """Return the claim of `parse` for the first item, under the version before."""
    snapshot = ItemSnapshot(
        id="A", aliases=(), tags={}, data={}, created_by=None, created_at=NOW, updated_at=NOW
    )
    usual = {
        "item_id": ITEM,
        "task_id": PARSE.id,
        "task": "parse",
        "version": "1",
        "token": uuid4(),
        "attempt": 1,
        "claimed_at": BEFORE,
        "slot": "",
        "is_alone": False,
        "item": snapshot,
    }
    return Claim(**{**usual, **fields})


def a_run(*, claim=None, **results):
    """Return a changeset that runs over the items A, with results by task, and B, with none."""
    numbered = {"parse": PARSE.id, "price": PRICE.id}
    a = Item(ITEM, "A", {}, "", results={numbered[name]: one for name, one in results.items()})
    state = State(
        crawl_id=1,
        now=NOW,
        tasks={"parse": PARSE, "price": PRICE},
        run=3,
        items={ITEM: a, OTHER: Item(OTHER, "B", {}, "")},
    )
    state.stored_owners.update({"A": ITEM, "B": OTHER})
    return ChangesetRun(Draft(state), claim, None if claim is None else ITEM)


def result(run, item=ITEM, task=PARSE):
    """Return what has become of a result in the draft."""
    return run.draft.item(item).results.get(task.id)


def labels(run):
    """Return the notes of a run, as the log shows them."""
    return [f"[{one.label}] {one.text}" for one in run.notes]


# Metadata


def test_own_metadata_is_of_a_result_that_is_still_to_come():
    """Without a result there is a pending one, which counts for nothing until the run ends."""
    run = a_run(claim=a_claim())

    run.apply(UpdateMetadata({"n": 2}))

    made = result(run)
    assert (made.metadata, made.is_pending, made.completed_at) == ({"n": 2}, True, None)
    assert labels(run) == ["[metadata] A parse"]
    result_operations.end_own(run, is_failed=False, is_held=False)
    assert (result(run).metadata, result(run).is_pending) == ({"n": 2}, False)


def test_metadata_of_another_task_changes_none_of_its_times():
    """Its result is not made again: when it was completed and when it expires stay."""
    run = a_run(claim=a_claim(), price=a_result(expires_at=None, due_at=None))

    run.apply(UpdateMetadata(lambda old: {"n": old["n"] + 1}, task="price"))

    other = result(run, task=PRICE)
    assert (other.metadata, other.completed_at, other.is_pending) == ({"n": 2}, BEFORE, False)
    assert other.is_changed


@pytest.mark.parametrize(
    "operation", [UpdateMetadata({}, id="A"), UpdateMetadata({}, task="parse"), Expire()]
)
def test_outside_an_execution_item_and_task_are_named(operation):
    """There is neither an item under work nor a task that runs."""
    with pytest.raises(OperationError, match="must be given outside an execution"):
        a_run().apply(operation)


def test_metadata_of_an_item_that_this_execution_deletes_is_refused():
    """It cannot be deleted and updated at once, in whichever order."""
    run = a_run(claim=a_claim())
    run.deleted.add(ITEM)

    with pytest.raises(OperationError, match="is deleted by this execution"):
        run.apply(UpdateMetadata({}))


# Results that are stored


def test_a_stored_result_is_as_if_the_task_had_just_run():
    """Complete, successful, of the version and the run in force, due after its time to live."""
    run = a_run()
    run.apply(StoreResult({"n": 5}, id="B", task="parse"))

    made = result(run, OTHER)
    assert (made.metadata, made.version, made.run) == ({"n": 5}, "2", 3)
    assert (made.is_successful, made.is_held, made.is_pending) == (True, False, False)
    assert (made.completed_at, made.expires_at, made.due_at) == (NOW, NOW + DAY, NOW + DAY)
    assert run.draft.effects.failures == [Handled((OTHER, PARSE.id))]


def test_a_stored_result_ends_what_was_stale_or_held():
    """It takes the place of what was there, overridden times to live included."""
    run = a_run(parse=a_result(is_held=True, invalidated_at=BEFORE, ttl_overridden=True))

    run.apply(StoreResult({}, id="A", task="parse"))

    made = result(run)
    assert (made.is_held, made.invalidated_at, made.ttl_overridden) == (False, None, False)
    assert made.metadata == {}


def test_there_has_to_be_such_a_task():
    """An unknown task is named, with the one that may be meant."""
    with pytest.raises(OperationError, match="there is no task 'prise'; did you mean 'price'"):
        a_run().apply(StoreResult({}, id="A", task="prise"))


# Expiry


def test_expiry_makes_results_stale_and_lets_failed_ones_run_again():
    """Outside, that of all tasks that ran; their open failures count as handled by it."""
    run = a_run(parse=a_result(is_held=True), price=a_result())

    run.apply(Expire(id="A"))

    for task in (PARSE, PRICE):
        assert (result(run, task=task).invalidated_at, result(run, task=task).is_held) == (
            NOW,
            False,
        )
    handled = [Handled((ITEM, task.id), by="expired") for task in (PARSE, PRICE)]
    assert run.draft.effects.failures == handled
    assert labels(run) == ["[expired] A"]


def test_inside_an_execution_its_own_task_is_meant():
    """Another task's result stays as it is, unless it is named."""
    run = a_run(claim=a_claim(), parse=a_result(), price=a_result())

    run.apply(Expire())

    assert run.own_expired
    assert result(run).invalidated_at == NOW
    assert result(run, task=PRICE).invalidated_at is None


def test_what_never_ran_cannot_be_expired_unless_somebody_runs_it():
    """Of a pair that is claimed an expiry is noted, and outlives the result that is to come."""
    run = a_run()
    run.draft.state.claimed_pairs.add((OTHER, PRICE.id))

    run.apply(Expire(id="B", task="parse"))
    run.apply(Expire(id="B", task="price"))

    assert result(run, OTHER) is None
    assert result(run, OTHER, PRICE).invalidated_at == NOW
    assert result(run, OTHER, PRICE).completed_at is None


# Times to live


@pytest.mark.parametrize(
    ("ttl", "expires_at", "is_due"),
    [
        ("2h", BEFORE + 2 * HOUR, True),
        ("30m", BEFORE + HOUR / 2, False),
        ("never", None, False),
        (None, BEFORE + DAY, True),
    ],
)
def test_a_time_to_live_counts_from_the_results_own_time(ttl, expires_at, is_due):
    """One that is over needs no staging any more; None gives back the task's own."""
    run = a_run(parse=a_result(ttl_overridden=True))

    run.apply(SetTTL(ttl, id="A", task="parse"))

    changed = result(run)
    assert changed.expires_at == expires_at
    assert changed.due_at == (expires_at if is_due else None)
    assert changed.ttl_overridden == (ttl is not None)
    assert labels(run) == [f"[ttl] A {ttl}"]


def test_without_a_result_there_is_nothing_to_live():
    """It is said, and nothing changes."""
    run = a_run()

    run.apply(SetTTL("1h", id="A", task="parse"))

    assert labels(run) == ["[no result] A parse", "[ttl] A 1h"]
    assert result(run) is None


def test_an_executions_own_time_to_live_waits_for_its_result():
    """It counts from the end of the execution, not from the result before."""
    run = a_run(claim=a_claim(), parse=a_result())

    run.apply(SetTTL("2h"))
    assert result(run).expires_at == BEFORE + DAY
    result_operations.end_own(run, is_failed=False, is_held=False)

    assert result(run).expires_at == NOW + 2 * HOUR
    assert result(run).ttl_overridden


# The end of an execution


def test_a_success_completes_the_pair_under_the_version_that_was_claimed():
    """A newer version in force finds it stale; metadata that nobody yielded stays."""
    run = a_run(claim=a_claim(), parse=a_result())

    result_operations.end_own(run, is_failed=False, is_held=False)

    done = result(run)
    assert (done.version, done.completed_at, done.metadata) == ("1", NOW, {"n": 1})
    assert (done.is_successful, done.is_held, done.run) == (True, False, 3)
    assert not done.is_fresh(PARSE.version)


def test_a_failure_holds_the_pair_unless_it_was_expired_meanwhile():
    """Whoever decides says so; a result that failed is complete, and no success."""
    for is_held in (True, False):
        run = a_run(claim=a_claim(), parse=a_result())

        result_operations.end_own(run, is_failed=True, is_held=is_held)

        assert (result(run).is_successful, result(run).is_held) == (False, is_held)


def test_a_page_of_a_plain_callback_that_failed_is_stale_once_it_is_handled():
    """Its result would otherwise be fresh, and the page not be fetched again."""
    task = TaskRow(PARSE.id, "parse", "1", None, is_registered=True, is_callback=True)
    run = a_run(claim=a_claim(), parse=a_result())
    run.draft.state.tasks["parse"] = task

    result_operations.end_own(run, is_failed=True, is_held=True)

    assert result(run).invalidated_at == NOW


def test_an_execution_that_expired_itself_runs_once_more():
    """Its result is complete and stale; the later of two expiries is not lost."""
    for before in ({"parse": a_result()}, {}):
        run = a_run(claim=a_claim(), **before)
        run.apply(Expire())

        result_operations.end_own(run, is_failed=False, is_held=False)

        assert (result(run).completed_at, result(run).invalidated_at) == (NOW, NOW)


@given(some.sampled_from([None, BEFORE - HOUR]), some.sampled_from([None, BEFORE, BEFORE - HOUR]))
def test_an_expiry_after_the_claim_outlives_it_and_the_one_that_it_answers_does_not(answers, now):
    """What somebody expired while it ran is run again, and what was claimed for that is not."""
    claim = a_claim(invalidated_at=answers)
    run = a_run(claim=claim, parse=a_result(invalidated_at=now))
    is_later = now not in {None, answers}

    assert result_operations.is_expired_since(run.draft.item(ITEM), claim) == is_later
    result_operations.end_own(run, is_failed=False, is_held=False)

    assert result(run).invalidated_at == (now if is_later else None)


def test_an_execution_that_ends_without_a_result_leaves_the_one_before():
    """What it made of its metadata is kept with a result that is pending no more."""
    run = a_run(claim=a_claim())
    run.apply(UpdateMetadata({"n": 2}))

    result_operations.leave_own(run)

    assert (result(run).is_pending, result(run).completed_at) == (False, None)


def test_an_execution_of_an_item_that_is_gone_completes_nothing():
    """It deleted its item, or the item is of no execution."""
    deleted, outside = a_run(claim=a_claim(), parse=a_result()), a_run(parse=a_result())
    deleted.draft.item(ITEM).is_deleted = True

    for run in (deleted, outside):
        result_operations.end_own(run, is_failed=False, is_held=False)
        result_operations.leave_own(run)

        assert run.draft.effects.failures == []
