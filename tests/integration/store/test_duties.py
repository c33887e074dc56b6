"""Duties: a worker's round for its crawl, and what others do for crawls that nobody runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from support import graphs, oracle

from scrapy_itemgraph import SetTTL
from scrapy_itemgraph.model import rule_matching
from scrapy_itemgraph.model.rules import PageRule, Ruleset
from scrapy_itemgraph.store.admin import run_lists
from scrapy_itemgraph.store.registry import (
    crawls,
    duties,
    rule_sweeps,
    rulesets,
    runs,
    tasks,
    workers,
)

pytestmark = pytest.mark.server

TAKE_OVER, TIMERS, RESULTS, SWEEP = duties.OF_CRAWL


@pytest.fixture
def crawl(connection):
    """Yield a crawl with one task, and check its worklist at the end."""
    crawl = graphs.Crawl.of(connection)
    yield crawl
    oracle.assert_worklist_is_true(connection, crawl.id)


def fall_due(crawl):
    """Let every timer and every result of the crawl fall due a second ago."""
    past = {"past": datetime.now(UTC) - timedelta(seconds=1)}
    for column in ("work SET not_before", "results SET due_at"):
        given = f"UPDATE {column} = :past WHERE {column.split()[2]} IS NOT NULL"
        crawl.connection.execute(sa.text(given), past)


def round_of(crawl):
    """Do a round, each transaction of it committed; return what they did, and what they left."""
    left, done = duties.OF_CRAWL, []
    while left:
        one = duties.Round(crawl_id=crawl.id, worker_id=crawl.worker)
        with graphs.committed(crawl.connection):
            left = duties.do(crawl.connection, left, one)
        done.append((one, list(left)))
    return done


def test_a_round_without_anything_to_do_is_one_transaction(crawl):
    """Where nobody died, nothing fell due and no sweep is open, one transaction finds that."""
    crawl.done("A", SetTTL(timedelta(days=1)))

    ((done, _),) = round_of(crawl)

    assert (done.timers, done.due, done.is_sweeping, done.has_more) == (0, 0, False, False)
    assert done.taken_over.claims == 0


def test_a_round_does_each_step_that_has_something_in_a_transaction_of_its_own(crawl):
    """A dead worker's claim, a timer, a result that fell due and a sweep are four transactions."""
    crawl.done("OLD", SetTTL(timedelta(days=1)))
    crawl.work("SOON", not_before=timedelta(hours=1))
    fall_due(crawl)
    dead = crawl.new_worker(timedelta(seconds=-1))
    crawl.work("A")
    crawl.claim(worker=dead)
    crawl.register(swept=False, parse={"tags": ["page"], "version": "2"})

    done, left = zip(*round_of(crawl), strict=True)

    assert list(left) == [[TIMERS, RESULTS, SWEEP], [RESULTS, SWEEP], [SWEEP], []]
    assert done[0].taken_over.claims >= 1
    assert [one.timers for one in done] == [0, 1, 0, 0]
    assert [one.due for one in done] == [0, 0, 1, 0]
    assert done[-1].is_sweeping
    crawl.sweep()


def test_what_locks_earlier_is_left_to_another_transaction(connection):
    """Duties that lock in order share a transaction; one that did nothing locked nothing."""

    def duty(name, first, last, *, did=True):
        return duties.Duty(name, 1.0, lambda *_: did, first, last)

    lock = duties.Lock
    items = duty("items", lock.ITEMS, lock.ITEMS)
    work = duty("work", lock.WORK, lock.LIMITS)
    idle = duty("idle", lock.WORK, lock.LIMITS, did=False)

    assert duties.do(connection, [items, work], duties.Round()) == ()
    assert duties.do(connection, [work, items], duties.Round()) == [items]
    assert duties.do(connection, [idle, items, work, idle], duties.Round()) == [idle]


def test_a_worker_is_told_the_tasks_that_a_later_start_declares_otherwise(crawl):
    """A worker that was registered with an older declaration is told of it."""
    old = crawl.registration
    crawl.register(parse={"tags": ["page"], "version": "2"})

    redefined, _ = tasks.outdated(crawl.connection, crawl.worker, old.tasks)

    assert redefined == {"parse"}


# Crawls that nobody runs


@pytest.fixture
def left(crawl):
    """Yield the crawl in a run whose only worker lives, and is through with `start()`."""
    crawl.run = runs.join(crawl.connection, crawl.id)
    workers.mark_started(crawl.connection, crawl.worker)
    return crawl


def attend(crawl, most=20):
    """Attend as a process that works on no crawl, until nothing is to do; return how often."""
    for steps in range(most):
        done = duties.Round()
        with graphs.committed(crawl.connection):
            if not duties.attend(crawl.connection, done):
                return steps
    raise AssertionError("it does not come to an end")


def end_lease(crawl, worker):
    """Let a worker be taken for dead."""
    ended = sa.text(
        "UPDATE processes SET lease_until = now() - interval '1 hour' WHERE id = :worker"
    )
    crawl.connection.execute(ended, {"worker": worker})


def present(crawl):
    """Return how the crawl's run stands."""
    return run_lists.last(crawl.connection, crawl.id)


def test_what_falls_due_of_a_crawl_that_nobody_runs_becomes_work(left):
    """Timers, results and sweeps; its dead worker is buried, and its claims are given back."""
    left.done("OLD", SetTTL(timedelta(days=1)))
    left.work("SOON", not_before=timedelta(hours=1))
    left.claimed("A")
    left.register(swept=False, parse={"tags": ["page"], "version": "2"})
    fall_due(left)
    end_lease(left, left.worker)

    assert attend(left) >= 4
    ready = left.rows("SELECT count(*) FROM work WHERE not_before IS NULL AND token IS NULL")
    assert ready == [(3,)]
    assert left.rows("SELECT count(*) FROM sweeps") == [(0,)]
    run = present(left)
    assert (run.state, run.reason) == ("stopped", "died")
    assert run.ended_at is not None
    assert runs.join(left.connection, left.id).number == left.run.number
    assert attend(left) == 0


def test_rules_of_a_crawl_that_nobody_runs_are_applied_by_who_can(connection, monkeypatch):
    """MNB-11: whoever attends applies rules; a process without google-re2 leaves them to others."""
    crawl = graphs.Crawl.of(connection)
    crawl.work("junk", data={"url": "http://a.example/junk"})
    workers.stop(connection, crawl.worker, "finished")
    rules = Ruleset(rules=(PageRule(match="/junk", skip=True),))
    rulesets.put(connection, crawl.id, rules, after=0, by="ann")
    rule_sweeps.begin(connection, crawl.id)
    held = "SELECT count(*) FROM results WHERE hold = 'skipped'"

    monkeypatch.setattr(rule_matching, "is_available", lambda: False)
    for _ in range(3):
        duties.attend(connection, duties.Round())
    assert connection.exec_driver_sql(held).scalar_one() == 0
    monkeypatch.undo()
    for _ in range(4):
        duties.attend(connection, duties.Round())

    assert connection.exec_driver_sql(held).scalar_one() == 1
    assert connection.exec_driver_sql("SELECT count(*) FROM sweeps").scalar_one() == 0


def test_a_crawl_that_a_worker_runs_is_left_to_it(left):
    """Nothing of it is done by others, also what fell due."""
    left.done("OLD", SetTTL(timedelta(days=1)))
    fall_due(left)

    assert attend(left) == 0
    assert left.rows("SELECT count(*) FROM work") == [(0,)]
    assert present(left).state == "running"
    assert round_of(left)[0][0].due == 1


def test_a_run_with_nothing_left_is_over_before_results_become_work(left):
    """Its last worker was killed before it could say so: the next start begins another run."""
    left.done("OLD", SetTTL(timedelta(days=1)))
    fall_due(left)
    end_lease(left, left.worker)

    assert attend(left) >= 2
    run = present(left)
    assert (run.number, run.state) == (left.run.number, "finished")
    assert left.rows("SELECT count(*) FROM work") == [(1,)]
    assert runs.join(left.connection, left.id).number == left.run.number + 1


def test_a_crawl_that_another_process_attends_to_is_left_to_it(engine):
    """Who comes second does nothing, and does not wait; nor beside a start that owns the crawl."""
    with engine.connect() as one, engine.connect() as other, engine.connect() as start:
        crawl = graphs.Crawl.of(one)
        crawl.done("OLD", SetTTL(timedelta(days=1)))
        fall_due(crawl)
        end_lease(crawl, crawl.worker)
        one.commit()

        assert duties.attend(one, duties.Round())
        assert not duties.attend(other, duties.Round())
        one.rollback()
        other.rollback()
        crawls.own_crawl(start, crawl.id)
        assert not duties.attend(other, duties.Round())
        other.rollback()
        start.rollback()
        assert attend(crawl) == 1
        oracle.assert_worklist_is_true(one, crawl.id)


def test_what_was_due_first_is_done_first():
    """A duty that was left for later, or was never done, goes before one that is due since then."""
    one, other, new = (duties.Duty(name, 5.0, lambda *_: False) for name in ("a", "b", "c"))
    table = duties.Timetable([one, other, new])
    table.did(one, duties.Round(), began=3.0, now=3.0)
    table.did(other, duties.Round(), began=1.0, now=1.0)

    assert table.due(100.0) == [new, other, one]


def test_many_processes_look_no_more_often_than_a_few():
    """With more to do a duty is due at once, else by its period; slow, or in a crowd, later."""
    duty = duties.Duty("any", 5.0, lambda *_: False)
    table = duties.Timetable([duty])

    assert table.due(0.0) == [duty]
    table.did(duty, duties.Round(has_more=True), began=0.0, now=0.0)
    assert table.due(0.0) == [duty]
    table.did(duty, duties.Round(), began=0.0, now=0.0)
    assert (table.due(4.9), table.due(5.0)) == ([], [duty])
    table.did(duty, duties.Round(processes=80), began=0.0, now=0.0)
    assert (table.due(49.0), table.due(50.0)) == ([], [duty])
    table.did(duty, duties.Round(), began=0.0, now=1.0)
    assert (table.due(50.0), table.due(51.0)) == ([], [duty])
