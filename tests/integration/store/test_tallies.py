"""What workers did is added up by the minute."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support import graphs

from scrapy_itemgraph.model.latencies import BOUNDS
from scrapy_itemgraph.model.tallies import NO_ANSWER, NO_TASK, Tallies
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.store import latencies, tallies
from scrapy_itemgraph.store.admin import activity, run_lists, totals
from scrapy_itemgraph.store.registry import runs

pytestmark = pytest.mark.server


def test_what_is_told_again_is_added_once(connection):
    """Tallies whose commit's answer was lost are told again, and count once."""
    crawl = graphs.Crawl.of(connection)
    (number,) = crawl.registration.tasks
    told = Tallies()
    told.ended(number, Outcome.OK)

    for _ in range(2):
        tallies.add(connection, crawl.id, told)

    done = activity.minutes(connection, crawl.id, timedelta(hours=1))
    assert sum(one.done for one in done) == 1


def test_workers_add_to_the_same_numbers(connection):
    """Two workers' tallies are added; a limit that nobody knows is left out, and nothing fails."""
    crawl = graphs.Crawl.of(connection)
    (number,) = crawl.registration.tasks
    connection.exec_driver_sql("INSERT INTO limits (kind, name) VALUES ('slot', 'a.example')")
    for _ in range(2):
        told = Tallies()
        told.ended(number, Outcome.OK, seconds=0.5, items=2)
        told.ended(number, Outcome.FAILED)
        told.starts.update({("slot", "a.example"): 3, ("slot", "unknown.example"): 1})
        tallies.add(connection, crawl.id, told)
    tallies.add(connection, crawl.id, Tallies())

    hour = timedelta(hours=1)
    done = activity.minutes(connection, crawl.id, hour)
    assert sum(one.done for one in done) == sum(one.failed for one in done) == 2
    assert (sum(one.items for one in done), sum(one.seconds for one in done)) == (4, 1.0)
    started = activity.requests(connection, hour)
    assert {one.name for one in started} == {"a.example"}
    assert sum(one.requests for one in started) == 6


def test_all_that_was_done_is_kept_by_task_and_for_the_run(connection):
    """Totals grow with each worker's tallies, requests by status and bytes among them."""
    crawl = graphs.Crawl.of(connection)
    (number,) = crawl.registration.tasks
    for size in (100, 20):
        told = Tallies()
        told.ended(number, Outcome.OK, items=2)
        told.of_task(number).scraped += 3
        told.answered(number, "200", size)
        told.answered(NO_TASK, NO_ANSWER)
        tallies.add(connection, crawl.id, told)
        runs.count(connection, crawl.id, runs.join(connection, crawl.id).number, [told])

    of_none, of_task = totals.totals(connection, crawl.id)
    assert of_none.task is None
    assert of_none.statuses == {NO_ANSWER: 2}
    assert (of_task.done, of_task.items, of_task.scraped, of_task.bytes) == (2, 4, 6, 120)
    assert of_task.statuses == {"200": 2}
    (run,) = run_lists.runs(connection, crawl.id)
    assert (run.pages, run.items, run.bytes) == (2, 6, 120)
    assert run.statuses == {"200": 2, NO_ANSWER: 2}


def test_links_that_were_too_long_are_added_up_for_the_run(connection):
    """Two workers' links are added, with the limit of those who left some out."""
    crawl = graphs.Crawl.of(connection)
    number = runs.join(connection, crawl.id).number
    (before,) = run_lists.runs(connection, crawl.id)
    for links, limit in ((2, 2083), (3, 2083), (0, 100)):
        told = Tallies(long_links=links, url_limit=limit)
        told.starts["slot", "a.example"] += 1
        runs.count(connection, crawl.id, number, [told])

    (run,) = run_lists.runs(connection, crawl.id)
    assert (before.long_links, before.url_limit, before.left_out) == (0, None, None)
    assert (run.long_links, run.url_limit) == (5, 2083)
    assert run.left_out == "5 links longer than URLLENGTH_LIMIT (2,083) were left out"


def test_numbers_at_their_end_can_be_added_to(connection):
    """What somebody wrote into a row ends neither a commit nor a worker's farewell."""
    crawl = graphs.Crawl.of(connection)
    (number,) = crawl.registration.tasks
    connection.exec_driver_sql("INSERT INTO limits (kind, name) VALUES ('slot', 'a.example')")
    for _ in range(2):
        connection.exec_driver_sql("UPDATE task_minutes SET done = 9223372036854775807")
        connection.exec_driver_sql("UPDATE totals SET done = 9223372036854775807")
        connection.exec_driver_sql("UPDATE limit_minutes SET requests = 9223372036854775807")
        told = Tallies()
        told.ended(number, Outcome.OK)
        told.starts.update({("slot", "a.example"): 3})
        tallies.add(connection, crawl.id, told)

    hour = timedelta(hours=1)
    assert max(one.done for one in activity.minutes(connection, crawl.id, hour)) >= tallies.LARGEST
    started = activity.requests(connection, hour)
    assert max(one.requests for one in started) >= tallies.LARGEST


def test_latencies_are_added_up_by_task_and_by_slot(connection):
    """MNB-13: two workers' histograms are added; slots that nobody knows are left out."""
    crawl = graphs.Crawl.of(connection)
    (number,) = crawl.registration.tasks
    connection.exec_driver_sql("INSERT INTO limits (kind, name) VALUES ('slot', 'a.example')")
    for _ in range(2):
        told = Tallies()
        for slot, seconds in [("a.example", 0.05), ("a.example", 3.0), ("unknown.example", 500.0)]:
            told.answered(number, "200")
            told.answered_in(number, slot, seconds)
        tallies.add(connection, crawl.id, told)

    (of_task,) = latencies.of_tasks(connection, crawl.id)
    counted = dict(zip((*BOUNDS, None), of_task.answers, strict=True))
    assert {bound: one for bound, one in counted.items() if one} == {0.05: 2, 5.0: 2, None: 2}
    assert of_task.seconds == pytest.approx(1006.1)
    (of_slot,) = latencies.of_slots(connection)
    assert (of_slot.slot, sum(of_slot.answers)) == ("a.example", 4)


def test_the_busiest_slots_are_told_and_no_more_than_a_bound(connection):
    """MNB-13: what monitoring reads of slots has a bound, however many websites there are."""
    crawl = graphs.Crawl.of(connection)
    (number,) = crawl.registration.tasks
    connection.exec_driver_sql(
        "INSERT INTO limits (kind, name) "
        "SELECT 'slot', n || '.example' FROM generate_series(1, 150) AS n"
    )
    told = Tallies()
    told.answered(number, "200")
    for slot in range(1, 151):
        for _ in range(2 if slot > 100 else 1):
            told.answered_in(number, f"{slot}.example", 0.1)
    tallies.add(connection, crawl.id, told)

    found = latencies.of_slots(connection)
    assert len(found) == latencies.MOST_SLOTS
    assert [sum(one.answers) for one in found] == [2] * 50 + [1] * 50
