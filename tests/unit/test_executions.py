"""Executions end once, when their last leg is closed, and say what they want changed."""

from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from scrapy_itemgraph.executions import Execution, LegState
from scrapy_itemgraph.operations import AllowFailure, UpdateData
from scrapy_itemgraph.tasks import Task
from scrapy_itemgraph.types import Claim, ItemSnapshot, Outcome

ERROR = {"type": "ValueError"}


@pytest.fixture
def ended():
    """Return the executions that have ended, in order."""
    return []


@pytest.fixture
def claim():
    """Return a claim."""
    return Claim(
        item_id=1,
        task_id=1,
        task="parse",
        version="1",
        token=uuid4(),
        attempt=1,
        claimed_at=datetime.now(UTC),
        slot="a.b",
        is_alone=False,
        item=ItemSnapshot(id="x", aliases=("x",), tags={}, data={}),
    )


@pytest.fixture
def execution(claim, ended):
    """Return a running execution of the claim."""
    task = Task(name="parse", method="parse")
    return Execution(where="here", claim=claim, task=task, on_end=ended.append)


def test_it_ends_with_its_last_leg(execution, ended):
    """An execution ends when the last of its legs is closed, and only once."""
    own = execution.open_leg(is_own=True)
    child = own.open_child()
    child.state = LegState.QUEUED

    own.close()
    assert not ended
    child.close()
    child.close()
    own.close()

    assert ended == [execution]
    with pytest.raises(RuntimeError):
        execution.open_leg()


def test_children_that_were_never_queued_end_with_their_parent(execution, ended):
    """A request that was yielded but refused does not keep its execution open."""
    own = execution.open_leg(is_own=True)
    own.open_child()

    own.close()

    assert ended == [execution]


def test_a_leg_stays_one_when_meta_is_copied(execution):
    """A deep copy of a request's meta keeps the leg itself."""
    leg = execution.open_leg()

    assert copy.deepcopy({"leg": leg})["leg"] is leg
    assert copy.copy(leg) is not None


def test_success_has_all_operations_in_order(execution, claim):
    """The changeset of a success is its operations as they came."""
    one, two = UpdateData({"a": 1}), UpdateData({"a": 2})
    execution.add(one)
    execution.add(two)

    changeset = execution.changeset()

    assert changeset.operations == (one, two)
    assert changeset.outcome is Outcome.OK
    assert changeset.claim is claim


def test_a_failure_drops_operations_and_keeps_the_first_error(execution):
    """Without allow_failure nothing of a failed execution is applied."""
    execution.add(UpdateData({"a": 1}))
    execution.fail(ERROR)
    execution.fail({"type": "KeyError"})

    changeset = execution.changeset()

    assert execution.is_doomed
    assert changeset.operations == ()
    assert changeset.error == ERROR
    assert not changeset.allow_failure


def test_an_allowed_failure_keeps_operations(execution):
    """AllowFailure keeps what was yielded; it is not itself an operation of the changeset."""
    execution.add(AllowFailure())
    execution.add(UpdateData({"a": 1}))
    execution.fail(ERROR)

    changeset = execution.changeset()

    assert not execution.is_doomed
    assert len(changeset.operations) == 1
    assert changeset.outcome is Outcome.FAILED
    assert changeset.allow_failure


def test_a_retry_has_a_delay_and_no_operations(execution):
    """A retry carries its delay; a failure after it changes nothing any more."""
    execution.add(UpdateData({"a": 1}))
    execution.retry(ERROR, timedelta(seconds=5))
    execution.fail({"type": "KeyError"})

    changeset = execution.changeset()

    assert changeset.outcome is Outcome.RETRY
    assert changeset.delay == timedelta(seconds=5)
    assert changeset.operations == ()
    assert changeset.error == ERROR


def test_a_release_wins_over_everything(execution):
    """Work that is given back keeps no error and no operations."""
    execution.add(UpdateData({"a": 1}))
    execution.fail(ERROR)
    execution.release()

    changeset = execution.changeset()

    assert changeset.outcome is Outcome.RELEASED
    assert changeset.error is None
    assert changeset.operations == ()


def test_without_a_claim_what_was_yielded_is_kept(ended):
    """A plain callback's operations are committed whatever happened after them."""
    execution = Execution(where="here", on_end=ended.append)
    execution.add(UpdateData({"a": 1}, id="x"))
    execution.fail(ERROR)

    changeset = execution.changeset()

    assert len(changeset.operations) == 1
    assert changeset.outcome is Outcome.OK
    assert changeset.claim is None
