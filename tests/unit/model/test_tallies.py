"""What a worker counts of its executions."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from scrapy_itemgraph.model.tallies import NO_ANSWER, NO_TASK, Tallies, TaskTally, added_up
from scrapy_itemgraph.model.work import Outcome


def test_executions_are_counted_by_task_and_end():
    """What was given back, or lost, is not counted; seeds count for their items alone."""
    tallies = Tallies()
    tallies.ended(1, Outcome.OK, seconds=0.5, items=3)
    tallies.ended(1, Outcome.RETRY, seconds=0.25)
    tallies.ended(2, Outcome.FAILED)
    tallies.ended(2, Outcome.REFUSED)
    tallies.ended(2, Outcome.RELEASED, seconds=9.0)
    tallies.ended(2, None, seconds=9.0)
    tallies.ended(NO_TASK, Outcome.OK, items=4)

    assert tallies.of_tasks == {
        1: TaskTally(done=1, retried=1, items=3, seconds=0.75),
        2: TaskTally(failed=1, refused=1),
        NO_TASK: TaskTally(items=4),
    }


def test_requests_are_counted_by_status():
    """A task has its requests by HTTP status, those without an answer too, and the bytes."""
    tallies = Tallies()
    tallies.answered(1, "200", 70)
    tallies.answered(1, "200", 30)
    tallies.answered(1, NO_ANSWER)
    tallies.answered(NO_TASK, "404", 5)

    assert tallies.of_tasks[1] == TaskTally(bytes=100, statuses=Counter({"200": 2, NO_ANSWER: 1}))
    whole = added_up(tallies.of_tasks.values())
    assert whole == TaskTally(bytes=105, statuses=Counter({"200": 2, NO_ANSWER: 1, "404": 1}))


def test_taking_begins_anew():
    """What was taken has all that was counted until then."""
    tallies = Tallies()
    tallies.ended(1, Outcome.OK)
    tallies.starts["slot", "a.example"] += 1
    taken = tallies.take()

    assert taken
    assert not tallies
    assert taken.of_tasks[1].done == 1
    assert taken.starts["slot", "a.example"] == 1


def test_links_that_are_too_long_are_told_with_their_limit():
    """They alone are worth telling; the limit is that of all that is counted later, too."""
    tallies = Tallies(url_limit=2083)
    assert not tallies
    tallies.long_links += 2
    assert tallies

    assert (tallies.take().long_links, tallies.take().url_limit) == (2, 2083)
    assert (tallies.long_links, tallies.url_limit) == (0, 2083)


def test_failures_are_told_by_what_is_alike():
    """What was taken has how many of each fingerprint, and the next begins anew."""
    tallies = Tallies()
    tallies.ended(1, Outcome.FAILED)
    tallies.failures[UUID(int=1)] += 2

    assert tallies.take().failures == {UUID(int=1): 2}
    assert not tallies.failures


def test_what_may_not_have_been_told_is_told_again():
    """Until it was told the same is taken, with its token; at the end it and the rest."""
    tallies = Tallies()
    tallies.ended(1, Outcome.OK)
    first = tallies.take()
    tallies.ended(2, Outcome.OK)

    assert tallies.take() is first
    before, rest = tallies.take_all()
    assert before is first
    assert list(rest.of_tasks) == [2]
    assert rest.token != first.token

    tallies.was_told()
    assert not any(tallies.take_all())
