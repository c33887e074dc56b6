"""Executions end once, when their last leg is closed, and say what they want changed."""

from __future__ import annotations

from datetime import timedelta

import pytest
from scrapy import Request
from support.parts import a_claim

from scrapy_itemgraph.model.limits import Terms
from scrapy_itemgraph.model.operations import AllowFailure, UpdateData
from scrapy_itemgraph.model.tasks import Task
from scrapy_itemgraph.model.work import ErrorRecord, Outcome
from scrapy_itemgraph.throttle.limiter import Limiter
from scrapy_itemgraph.worker.executions.execution import Execution, LegState, leg_of, request_legs

ERROR = ErrorRecord(type="ValueError", message="wrong")


@pytest.fixture
def ended():
    """Return the executions that have ended, in order."""
    return []


@pytest.fixture
def claim():
    """Return a claim."""
    return a_claim()


@pytest.fixture
def execution(claim, ended):
    """Return a running execution of the claim."""
    task = Task(name="parse", method="parse", tags=("page",))
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


def test_a_request_has_its_leg_while_the_engine_has_it(execution):
    """A copy has none, nothing stands in its meta, and in the end neither is kept."""
    leg, request = execution.open_leg(), Request("http://a.example/")

    leg.handed_out(request)
    assert leg_of(request) is leg
    assert leg_of(request.copy()) is None
    assert not request.meta
    leg.handed_out(retry := request.copy())
    assert leg_of(request) is None
    leg.close()

    assert request_legs.get(retry) is None


def test_a_doomed_execution_waits_for_nothing_that_is_queued(execution, ended):
    """A failure closes the legs that were not started, and leaves alone those that run."""
    own = execution.open_leg(is_own=True)
    own.state = LegState.RUNNING
    for _ in range(3):
        own.open_child().state = LegState.QUEUED

    execution.fail(ERROR)
    assert execution.legs == {own}
    own.close()

    assert ended == [execution]


def test_an_allowed_failure_goes_on_with_what_is_queued(execution):
    """The follow-ups of a failure that may keep its operations still run."""
    execution.add(AllowFailure())
    execution.open_leg().state = LegState.QUEUED

    execution.fail(ERROR)

    assert len(execution.legs) == 1


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.REFUSED, Outcome.RETRY])
def test_a_release_keeps_an_outcome_that_is_known(execution, outcome):
    """A crawl that ends gives back only work whose attempt has no outcome yet."""
    if outcome is Outcome.RETRY:
        execution.retry(ERROR, timedelta(seconds=9))
    else:
        (execution.fail if outcome is Outcome.FAILED else execution.refuse)(ERROR)

    execution.release()

    changeset = execution.changeset()
    assert changeset.outcome is outcome
    assert changeset.error == ERROR
    assert (changeset.delay is not None) == (outcome is Outcome.RETRY)


def test_what_a_leg_occupies_is_given_back_once(execution):
    """Its limits count it from when the engine gets its request until it is fetched or closed."""
    limiter = Limiter(("slot", "a.example"), Terms)
    leg = execution.open_leg(is_own=True)
    leg.lane = (limiter,)
    leg.handed_out(Request("http://a.example"))
    assert (limiter.occupied, limiter.ahead, execution.running) == (1, 1, {leg})

    leg.fetched()
    leg.close()

    assert (limiter.occupied, limiter.ahead, execution.running) == (0, 0, set())


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
    execution.fail(ErrorRecord(type="KeyError", message="other"))

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
    execution.fail(ErrorRecord(type="KeyError", message="other"))

    changeset = execution.changeset()

    assert changeset.outcome is Outcome.RETRY
    assert changeset.delay == timedelta(seconds=5)
    assert changeset.operations == ()
    assert changeset.error == ERROR


def test_a_release_leaves_nothing_behind(execution):
    """Work that is given back keeps no error and no operations."""
    execution.add(UpdateData({"a": 1}))
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
