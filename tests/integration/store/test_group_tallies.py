"""Failures that are alike keep a number, and how often they were, in all and by run."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import pytest
import sqlalchemy as sa
from support import graphs, races

from scrapy_itemgraph.model import error_fingerprints
from scrapy_itemgraph.model.tallies import Tallies
from scrapy_itemgraph.model.work import ErrorRecord, Outcome
from scrapy_itemgraph.store import group_tallies, tallies
from scrapy_itemgraph.store.admin import failure_groups
from scrapy_itemgraph.store.pruning import RULES, prune
from scrapy_itemgraph.store.registry import runs

pytestmark = pytest.mark.server

TASKS = {"parse": {"tags": ["page"]}}
A, B, C = (UUID(int=number) for number in (3, 2, 1))


def told(connection, crawl, run, *fingerprints):
    """Tell of failures of a run, as a worker does."""
    one = Tallies(failures=Counter(fingerprints))
    runs.count(connection, crawl.id, run, [one])


def known(connection, crawl):
    """Return the number, times and runs of each group that has a row."""
    found = group_tallies.known(connection, crawl.id, [A, B, C])
    return {name: (one.number, one.times, [*map(tuple, one.runs)]) for name, one in found.items()}


def test_groups_are_numbered_as_they_come_and_counted_by_run(connection):
    """A number is the crawl's own and never changes; `times` counts all runs together."""
    crawl = graphs.Crawl.of(connection, **TASKS)
    other = graphs.Crawl(connection, "other")
    told(connection, crawl, 1, B, A, B)
    told(connection, other, 7, A)
    told(connection, crawl, 1, A)
    told(connection, crawl, 2, C, A)

    assert known(connection, crawl) == {
        B: (1, 2, [(1, 2)]),
        A: (2, 2 + 1, [(1, 2), (2, 1)]),
        C: (3, 1, [(2, 1)]),
    }
    assert known(connection, other) == {A: (1, 1, [(7, 1)])}


def test_the_last_ten_runs_that_failed_are_kept(connection):
    """Those before count for the times in all; runs come in the order of their numbers."""
    crawl = graphs.Crawl.of(connection, **TASKS)
    for run in range(1, 15):
        told(connection, crawl, run, A)

    assert known(connection, crawl) == {A: (1, 14, [(run, 1) for run in range(5, 15)])}


def test_what_somebody_wrote_ends_no_worker(connection):
    """The largest numbers are added to, and values that are no counts by run are left out."""
    crawl = graphs.Crawl.of(connection, **TASKS)
    told(connection, crawl, 1, A)
    for stored in ("[]", '{"x": 1, "2": "a", "3": 9223372036854775807, "4": null}'):
        connection.execute(
            sa.text("UPDATE failure_groups SET times = 9223372036854775807, runs = :runs"),
            {"runs": stored},
        )
        known(connection, crawl)
        told(connection, crawl, 5, A)

    assert known(connection, crawl) == {A: (1, tallies.LARGEST + 1, [(3, tallies.LARGEST), (5, 1)])}


def test_a_group_outlives_the_handling_of_its_failures(connection):
    """Since when it fails, and how often, is told of handled failures too, once it fails again."""
    crawl = graphs.Crawl.of(connection, **TASKS)
    error = ErrorRecord(type="ValueError", message="no price")
    for run, name in ((1, "A"), (1, "B"), (2, "C")):
        crawl.end(crawl.claimed(name), outcome=Outcome.FAILED, error=error)
        (before,) = failure_groups.groups(connection, crawl.id, limit=9)
        (number,) = crawl.registration.tasks
        told(connection, crawl, run, error_fingerprints.of_error(number, error))
        (group,) = failure_groups.groups(connection, crawl.id, limit=9)
        if name == "A":
            assert (before.number, before.times, before.runs) == (None, 1, [])
            assert before.first_seen == group.first_seen == group.first_at
            first = group.first_seen
        if name == "B":
            assert group.count == group.times == 2
            crawl.handle(retry=False)
            assert failure_groups.groups(connection, crawl.id, limit=9) == []
            crawl.age(days=1)

    assert (group.number, group.count, group.times) == (1, 1, 3)
    assert [*map(tuple, group.runs)] == [(1, 2), (2, 1)]
    assert (group.first_at - group.first_seen).days == 1
    assert group.first_seen < first


def test_groups_go_a_year_after_their_last_failure_and_no_number_comes_again(connection):
    """The group of the highest number stays, so that the next one counts on from it."""
    crawl = graphs.Crawl.of(connection, **TASKS)
    told(connection, crawl, 1, A, B)
    crawl.age(days=400)
    (rule,) = [one for one in RULES if one.table == "failure_groups"]

    assert prune(connection, rule) == 1
    told(connection, crawl, 1, C, A)
    assert known(connection, crawl) == {
        B: (2, 1, [(1, 1)]),
        C: (3, 1, [(1, 1)]),
        A: (4, 1, [(1, 1)]),
    }


def test_groups_that_two_workers_find_at_once_have_two_numbers(engine, pair):
    """Who numbers groups waits for the other one's commit, also where their runs differ."""
    first, second = pair
    with engine.begin() as connection:
        crawl = graphs.Crawl.of(connection, **TASKS)
    first.run(told, crawl, 1, A)
    step = second.start(told, crawl, 2, A, B)
    second.until_blocked()
    first.commit()
    step.result(races.PATIENCE)
    second.commit()

    with engine.begin() as connection:
        assert known(connection, crawl) == {A: (1, 2, [(1, 1), (2, 1)]), B: (2, 1, [(2, 1)])}
