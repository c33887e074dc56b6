"""Statements about the queue read few rows, however many crawls, jobs and events there are."""

from __future__ import annotations

import itertools
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
import sqlalchemy as sa
from support import graphs
from support.plans import explaining

from scrapy_itemgraph.model.crawl_states import State
from scrapy_itemgraph.model.jobs import Stop
from scrapy_itemgraph.model.notices import Answer, Arrival, Watch
from scrapy_itemgraph.model.runners import Terms
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.store import awakening, group_tallies, health
from scrapy_itemgraph.store.admin import (
    job_reports,
    notice_lists,
    queue_pages,
    queue_reports,
    status,
)
from scrapy_itemgraph.store.registry import (
    crawl_ends,
    crawl_queue,
    job_ends,
    jobs,
    notice_watch,
    notices,
    places,
    runners,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

pytestmark = pytest.mark.server

ACTIVE, FINISHED = 2_000, 20_000
MOST = 60  # rows of tables that a statement may read for four places
DUE = 100  # notices; a claim judges each, of a thousand at most
MOST_OF = {
    "queue_reports.NAMED": MOST + ACTIVE,  # the place of a crawl is counted
    "notices.CLAIM": MOST + DUE,
}
TABLES = (
    "crawls",
    "jobs",
    "crawl_events",
    "places",
    "runners",
    "schedules",
    "processes",
    "queues",
    "notices",
)
FILL = (
    """INSERT INTO crawls (name, state, spider, project, start_arguments, nice, queued_at)
    SELECT 'active ' || n, 'active', 's', 'p', '{}', n % 5, clock_timestamp()
    FROM generate_series(1, :active) AS n""",
    """INSERT INTO crawls (name, state, spider, project, start_arguments, queued_at)
    SELECT 'over ' || n, 'finished', 's', 'p', '{}', clock_timestamp()
    FROM generate_series(1, :finished) AS n""",
    """INSERT INTO jobs (crawl_id, origin, state, attempts, started_at, ended_at, exit_code,
        worker_id)
    SELECT id, 'runner', 'completed', 1, now() - interval '1 hour', now(), 0, 1000000 + id
    FROM crawls
    CROSS JOIN generate_series(1, 2) WHERE state = 'finished'""",
    """INSERT INTO schedules (crawl_id, kind, spec, starts_at)
    SELECT id, 'every', '1h', now() FROM crawls""",
    """INSERT INTO crawl_events (crawl_id, at, by, what, detail)
    SELECT id, now(), 'ann', what, '{}' FROM crawls
    CROSS JOIN unnest(ARRAY['added', 'assigned', 'ended', 'finished']) AS what""",
    # A hundred are due.
    """INSERT INTO notices (what, project, body, next_at)
    SELECT 'finished', 'p', json_build_object('crawl', 'over ' || n % 20),
        CASE WHEN n % 2 = 0 THEN now() + n * interval '1 second' - interval '200 seconds' END
    FROM generate_series(1, :finished) AS n""",
    """INSERT INTO queues (crawl_id, slot_id, is_live)
    SELECT id, (SELECT min(id) FROM limits), true FROM crawls WHERE state = 'finished' LIMIT 10""",
)
TERMS = Terms(name="r", project="p", places=4)
OWN = {"host": "h", "process_id": 1, "lease": timedelta(minutes=1), "running": {}}


@pytest.fixture(params=["no statistics", "statistics"])
def filled(request, engine) -> Iterator[Connection]:
    """Yield a transaction on a queue with many crawls, most of which are over."""
    with engine.begin() as connection:
        for table in TABLES:
            connection.exec_driver_sql(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        connection.exec_driver_sql("INSERT INTO limits (kind, name) VALUES ('slot', 'a.example')")
        for statement in FILL:
            connection.execute(sa.text(statement), {"active": ACTIVE, "finished": FINISHED})
        if request.param == "statistics":
            connection.exec_driver_sql("ANALYZE")
    with engine.connect() as connection:
        engines.hot_path(connection)
        yield connection
        connection.rollback()


def test_a_round_of_a_runner_reads_few_rows(filled):
    """MNB-4: to look, assign, note, end and preempt is done without reading the queue through."""
    process, runner = runners.register(filled, TERMS, **OWN)
    here = runner, process.id
    with explaining(filled) as explained:
        assert places.look(filled, *here).may_assign
        given = places.assign(filled, *here, "h")
        first, second, *_ = given
        job_ends.started(filled, first.job, 4711, "log")
        jobs.of_runner(filled, first.job, spider="s", host="h", process_id=4711)
        job_ends.keep_output(filled, first.job, "said", 0, 1)
        job_ends.stop(filled, second.job, Stop.TIME, by="runner r")
        job_ends.end(filled, first.job, by="runner r", exit_code=1)
        job_ends.end(filled, second.job, by="runner r", exit_code=0)
        filled.execute(sa.text("UPDATE places SET since = since - interval '1 hour'"))
        filled.execute(sa.text("UPDATE crawls SET nice = -9 WHERE name = 'active 1999'"))
        places.look(filled, *here)
        places.assign(filled, *here, "h")
        places.preempt(filled, *here)

    assert len(given) == 4
    assert too_many(explained) == {}


def test_what_happens_to_one_crawl_reads_few_rows(filled):
    """MNB-4: a crawl is steered, awakened and explained without reading the others."""
    over = filled.scalar(sa.text("SELECT id FROM crawls WHERE name = 'over 7'"))
    with explaining(filled) as explained:
        assert awakening.awaken(filled, [over]) == 1
        crawl_ends.awaken_missed(filled)
        crawl_queue.set_terms(filled, "active 7", {"nice": 3}, by="ann")
        queue_reports.history(filled, "active 7")
        queue_reports.processes(filled, "active 7")
        runners.register(filled, TERMS, **OWN)
        assert queue_reports.waits(filled, "active 7").runners
        job_reports.jobs(filled, limit=20)
        job_reports.jobs(filled, crawl="over 7")
        job_reports.jobs(filled, is_open=True)

    assert too_many(explained) == {}


def test_a_page_of_the_queue_reads_few_rows(filled):
    """A page of the queue, and why its crawls wait, reads no crawls before it or behind it."""
    with explaining(filled) as explained:
        runners.register(filled, TERMS, **OWN)
        first = queue_pages.page(filled, list(State), limit=4)
        after = queue_pages.page(filled, list(State), after=first.next, limit=4)
        over = queue_pages.page(filled, [State.FINISHED], limit=4)
        older = queue_pages.page(filled, [State.FINISHED], after=over.next, limit=4)
        assert queue_pages.exists(filled)

    assert [one.crawl.place for one in (*first.rows, *after.rows)] == list(range(1, 9))
    names = [f"over {number}" for number in range(FINISHED, FINISHED - 8, -1)]
    assert [one.crawl.name for one in (*over.rows, *older.rows)] == names

    assert too_many(explained) == {}


def test_the_health_of_crawls_reads_few_rows(filled):
    """Of each crawl its last runs, a few failures and results, and no other crawl's."""
    filled.execute(
        sa.text("""
        INSERT INTO tasks (crawl_id, name, spider, version, definition)
        SELECT id, 'parse', 's', '1', gen_random_uuid() FROM crawls""")
    )
    filled.execute(
        sa.text("""
        INSERT INTO runs (crawl_id, number, started_at, pages)
        SELECT id, n, now(), 1 FROM crawls CROSS JOIN generate_series(1, 12) AS n
        WHERE id % 10 = 0""")
    )
    numbers = list(filled.scalars(sa.text("SELECT id FROM crawls WHERE id % 10 = 0 LIMIT 4")))
    with explaining(filled) as explained:
        found = health.of_each(filled, numbers)

    assert [len(one.runs) for one in found.values()] == [10] * 4
    assert {one.name for one in explained} == {"engine.HOT_PATH", "health.FACTS"}
    assert too_many(explained) == {}


def test_failures_of_groups_are_told_by_reading_few_rows(filled):
    """However many groups the crawl had: each by its key, and the highest number."""
    crawl = filled.execute(sa.text("SELECT id FROM crawls ORDER BY id LIMIT 1")).scalar_one()
    filled.execute(
        sa.text("""
        INSERT INTO failure_groups
            (crawl_id, fingerprint, number, first_seen, last_seen, times, runs)
        SELECT :crawl, gen_random_uuid(), n, now(), now(), 1, '{"1": 1}'
        FROM generate_series(1, 20000) AS n"""),
        {"crawl": crawl},
    )
    known = filled.scalars(sa.text("SELECT fingerprint FROM failure_groups LIMIT 20")).all()
    engines.hot_path(filled)
    with explaining(filled) as explained:
        group_tallies.add(filled, crawl, 7, [Counter([*known, *(uuid4() for _ in range(5))])])
        found = group_tallies.known(filled, crawl, known)

    assert [len(one.runs) for one in found.values()] == [2] * 20
    sent = {one.name.removeprefix("group_tallies.") for one in explained}
    assert sent == {"LOCK", "ADD", "KNOWN"}
    assert too_many(explained) == {}


def test_notices_are_claimed_listed_and_looked_for_by_reading_few_rows(filled):
    """However many were sent or wait for their next try, and crawls there are."""
    runners.register(filled, TERMS, **OWN)
    filled.execute(
        sa.text("UPDATE processes SET crawl_id = 7, started_at = now() - interval '1 day'")
    )
    watched = Watch(idle=timedelta(hours=1), failures=1)
    kinds, lease = ["finished"], timedelta(minutes=1)
    with explaining(filled) as explained:
        claimed = notices.claim(filled, "p", kinds=kinds, lease=lease, limit=10)
        assert len(claimed) == 10
        sent = Answer(channel="c", arrival=Arrival.SENT, said="204")
        assert not notices.answered(filled, claimed[0], [sent])
        for _ in range(2):
            notice_watch.watch(filled, watched, "p")
        assert len(notice_lists.notices(filled, crawl=None, before=None, limit=10)) == 10
        assert len(notice_lists.notices(filled, crawl="over 7", before=None, limit=10)) == 10

    assert too_many(explained) == {}


def test_attempts_name_their_jobs_by_reading_few_rows(filled):
    """MNB-13: however many jobs there are, and of one crawl, an attempt's is found at once."""
    crawl = graphs.Crawl.of(filled)
    crawl.done("A")
    over = filled.scalar(sa.text("SELECT id FROM crawls WHERE name = 'over 7'"))
    filled.execute(sa.text("UPDATE attempts SET worker_id = :id"), {"id": 1_000_000 + over})
    with explaining(filled) as explained:
        (attempt,) = status.attempts(filled, crawl.item_id("A"), limit=10)

    last = "SELECT max(id) FROM jobs WHERE crawl_id = :id"
    assert attempt.job == filled.scalar(sa.text(last), {"id": over})
    assert too_many(explained) == {}


def too_many(explained) -> dict[str, int]:
    """Return the statements that read too many rows, and how many."""
    names = itertools.groupby(sorted(explained, key=lambda one: one.name), lambda one: one.name)
    most = {name: max(one.rows for one in group) for name, group in names}
    return {name: rows for name, rows in most.items() if rows > MOST_OF.get(name, MOST)}
