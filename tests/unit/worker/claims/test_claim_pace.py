"""How much is claimed at a time, and when again."""

from __future__ import annotations

import pytest

from scrapy_itemgraph.worker.claims.claim_pace import ClaimPace


@pytest.mark.parametrize(("rate", "batch"), [(0, 25), (10, 25), (200, 60), (1000, 100)])
def test_a_batch_is_what_is_worked_off_in_the_time_that_is_looked_ahead(rate, batch):
    """It follows the rate at which requests are handed out, between its bounds."""
    pace = ClaimPace(least=25, most=100)

    for second in range(10):
        pace.claimed(0, rate * second, float(second))

    assert pace.batch == pytest.approx(batch, abs=1)


def test_the_batch_of_a_worker_that_became_slow_shrinks_again():
    """What it was fast with a while ago does not keep work from others."""
    pace = ClaimPace(least=25, most=100)
    pace.claimed(0, 0, 0.0)
    pace.claimed(0, 500, 1.0)
    fast = pace.batch

    pace.claimed(0, 501, 4.0)

    assert fast > 90
    assert pace.batch == 25


def test_a_claim_waits_while_more_than_half_is_left_of_the_last():
    """Within a tenth of a second; what is half gone, or was nothing, is replaced at once."""
    pace = ClaimPace(least=25, most=100)
    assert pace.due_in(0, 10.0) == 0

    pace.claimed(20, 0, 10.0)

    assert pace.due_in(11, 10.04) == pytest.approx(0.06)
    assert pace.due_in(10, 10.04) == 0
    assert pace.due_in(20, 10.2) == 0


def test_who_runs_dry_while_it_claims_claims_more():
    """A claim that takes long must bring enough for as long, or its worker only waits."""
    pace = ClaimPace(least=25, most=100)
    for second in range(3):
        pace.claimed(25, 8 * second, float(second), ran_dry=True)
    slow = pace.batch

    for second in range(3, 10):
        pace.claimed(25, 8 * second, float(second))

    assert slow == 100
    assert pace.batch == 25


def test_one_of_many_workers_claims_more_and_more_rarely():
    """So that many workers together claim no more often than few, within a second's work each."""
    few, many = ClaimPace(least=25, most=200), ClaimPace(least=25, most=200)
    for second in range(10):
        few.claimed(20, 100 * second, float(second))
        many.claimed(20, 100 * second, float(second), crowd=8.0)

    assert few.batch == pytest.approx(30, abs=1)
    assert many.batch == pytest.approx(100, abs=1)
    assert few.due_in(15, 9.0) == pytest.approx(0.1)
    assert many.due_in(15, 9.0) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("takes", "enough", "batch"), [(0.0, 30, 60), (0.2, 50, 100), (0.4, 80, 100)]
)
def test_a_claim_begins_while_there_is_enough_for_the_time_that_it_takes(takes, enough, batch):
    """So a worker whose database is far away does not run dry each time."""
    pace = ClaimPace(least=25, most=100)

    for second in range(40):
        pace.answered(takes)
        pace.claimed(batch, 200 * second, float(second))

    assert pace.batch == pytest.approx(batch, abs=1)
    assert pace.enough == pytest.approx(enough, abs=1)
    assert pace.due_in(pace.enough, 39.0) == 0
    assert pace.due_in(pace.enough + 2, 39.0) > 0


def test_a_slow_worker_leaves_work_to_others_however_long_claims_take():
    """What it hands out while a claim is under way is little, and so is what it claims."""
    pace = ClaimPace(least=25, most=100)

    for second in range(40):
        pace.answered(0.4)
        pace.claimed(25, 5 * second, float(second))

    assert (pace.batch, pace.enough) == (25, 12)
