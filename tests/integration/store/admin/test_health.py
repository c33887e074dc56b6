"""The health of crawls, as it is read: by one statement, of what stands in the tables."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from support import steering
from support.graphs import Crawl

from scrapy_itemgraph.exceptions import NotFoundError
from scrapy_itemgraph.model.crawl_states import Event, State
from scrapy_itemgraph.model.health import Health
from scrapy_itemgraph.store import health
from scrapy_itemgraph.store.admin import crawl_lists
from scrapy_itemgraph.store.registry import crawl_queue, runs

LED = sa.text("UPDATE results SET led_to = gen_random_uuid()")


@pytest.fixture
def crawl(connection) -> Crawl:
    """Return a crawl with a task, and a run."""
    crawl = Crawl.of(connection)
    runs.join(connection, crawl.id)
    return crawl


def did(crawl: Crawl, **numbers: int) -> None:
    """Have the newest run done so much."""
    for name, number in numbers.items():
        crawl.rows(
            f"UPDATE runs SET {name} = :number WHERE crawl_id = :crawl RETURNING 1",
            number=number,
            crawl=crawl.id,
        )


def test_a_crawl_is_amber_while_failures_are_open(crawl):
    """It counts open failures and names the last; refusals and handled failures do not count."""
    did(crawl, pages=5, failures=2)
    crawl.failed("A")
    crawl.failed("B")

    found = health.of_crawl(crawl.connection, crawl.id)
    assert found.health is Health.AMBER
    assert found.why == "2 failures are open, the last: ValueError in parse"

    crawl.handle(retry=False)
    assert health.of_crawl(crawl.connection, crawl.id).health is Health.GREEN


def test_a_crawl_is_red_whose_newest_run_did_no_page(crawl):
    """An older run that did pages does not make up for it."""
    did(crawl, pages=300)
    crawl.rows("UPDATE runs SET is_finished = true, ended_at = now() RETURNING 1")
    crawl.rows("UPDATE crawls SET run = 2 RETURNING 1")
    crawl.rows(
        "INSERT INTO runs (crawl_id, number, started_at, failures) VALUES (:crawl, 2, now(), 1) "
        "RETURNING 1",
        crawl=crawl.id,
    )
    crawl.failed("A")

    found = health.of_crawl(crawl.connection, crawl.id)
    assert found.health is Health.RED
    assert found.why.startswith("run 2 did no page, since 2")
    assert found.why.endswith(": ValueError in parse")
    assert [(one.number, one.health) for one in found.runs] == [(2, Health.RED), (1, Health.GREEN)]


@pytest.mark.parametrize(("number", "expected"), [(10, Health.GREEN), (11, Health.AMBER)])
def test_more_than_ten_pages_that_led_to_a_known_page_are_amber(crawl, number, expected):
    """Those whose result does not stand any more, and that will be fetched again, do not count."""
    for page in range(number + 1):
        crawl.done(f"P:{page}")
    crawl.connection.execute(LED)
    crawl.rows(
        "UPDATE results SET invalidated_at = now() WHERE item_id = "
        "(SELECT min(item_id) FROM results) RETURNING 1"
    )

    assert health.of_crawl(crawl.connection, crawl.id).health is expected


def test_a_machines_pause_is_red_and_a_persons_is_not(connection):
    """What a person pauses is well; a crash loop, or a process that cannot start, is not."""
    names = [steering.add(connection, spider) for spider in ("a", "b", "c")]
    numbers = {
        name: connection.scalar(sa.text("SELECT id FROM crawls WHERE name = :name"), {"name": name})
        for name in names
    }
    steering.change(connection, names[0], "pause", reason="the site asked")
    for name, event in zip(names[1:], (Event.CRASH_LOOP, Event.PAUSED), strict=True):
        crawl_queue.put(
            connection, numbers[name], State.PAUSED, event, by="runner r", reason="why", job=7
        )

    found = health.of_each(connection, list(numbers.values()))

    assert [found[one].health for one in numbers.values()] == ["green", "red", "red"]
    assert found[numbers["b"]].why == "it was paused, and not by a person: why"
    steering.change(connection, "b", "resume")
    assert health.of_crawl(connection, numbers["b"]).health is Health.GREEN


def test_a_crawl_that_was_deleted_meanwhile_is_not_found(connection):
    """Whoever asks for its status gets no error of Python's."""
    with pytest.raises(NotFoundError, match="deleted meanwhile"):
        health.of_crawl(connection, 12345)


def test_a_list_has_the_health_of_each_by_one_statement(connection):
    """However many crawls there are."""
    crawls = [Crawl(connection, f"crawl {number}") for number in range(30)]
    crawls[7].register(parse={"tags": ["page"]})
    crawls[7].failed("A")
    sent = []
    sa.event.listen(connection, "before_cursor_execute", lambda *given: sent.append(given[2]))

    listed = crawl_lists.listed(connection)

    assert len(sent) == 3  # the crawls, settings of the planner, their health
    assert {one.crawl: one.health for one in listed if one.health is not Health.GREEN} == {
        "crawl 7": "amber"
    }
