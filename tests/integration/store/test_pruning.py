"""What is deleted when nobody needs it any more, and what is left alone."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from support import graphs, oracle
from support.graphs import Crawl

from scrapy_itemgraph import CreateItem
from scrapy_itemgraph.store import pruning
from scrapy_itemgraph.store.admin import run_lists, status
from scrapy_itemgraph.store.pruning import RULES, STEP, prune
from scrapy_itemgraph.store.registry import crawls, runs

pytestmark = pytest.mark.server

RULE = {rule.table: rule for rule in RULES}


@pytest.fixture
def crawl(connection):
    """Yield a crawl with one task, and check its worklist at the end."""
    crawl = graphs.Crawl.of(connection)
    yield crawl
    oracle.assert_worklist_is_true(connection, crawl.id)


def execute(crawl, statement, **given):
    """Run a statement; `ago(…)` in it is a moment so long ago."""
    text = sa.text(statement.replace("ago(", "(clock_timestamp() - interval "))
    known = {"crawl": crawl.id, **given}
    crawl.connection.execute(text, {name: known[name] for name in text._bindparams})


def names(crawl, table, column="name"):
    """Return a column of a table, in order."""
    return [row[0] for row in crawl.rows(f"SELECT {column} FROM {table} ORDER BY 1")]


def test_cookies_and_states_that_are_over_go_after_a_day(crawl):
    """Others get a day to drop what expired or was deleted; what does not expire stays."""
    execute(
        crawl,
        """
        INSERT INTO cookies (crawl_id, jar, domain, path, name, cookie, expires_at) VALUES
            (:crawl, 'null', 'a', '/', 'expired', '{}', ago('25 hours')),
            (:crawl, 'null', 'a', '/', 'deleted', NULL, ago('25 hours')),
            (:crawl, 'null', 'a', '/', 'just expired', '{}', ago('23 hours')),
            (:crawl, 'null', 'a', '/', 'of the session', '{}', NULL)
        """,
    )
    execute(
        crawl,
        """
        INSERT INTO spider_state (crawl_id, key, value, changed_at) VALUES
            (:crawl, 'deleted', NULL, ago('25 hours')), (:crawl, 'old', '1', ago('25 hours')),
            (:crawl, 'just deleted', NULL, ago('1 hour'))
        """,
    )

    assert prune(crawl.connection, RULE["cookies"]) == 2
    assert prune(crawl.connection, RULE["spider_state"]) == 1
    assert names(crawl, "cookies") == ["just expired", "of the session"]
    assert names(crawl, "spider_state", "key") == ["just deleted", "old"]


def test_more_cookies_of_a_domain_than_are_read_go(crawl, monkeypatch):
    """Of a domain with too many, those stay that a claim would read: the general, then the new."""
    monkeypatch.setattr(pruning, "MOST_COOKIES", 4)
    execute(
        crawl,
        """
        INSERT INTO cookies (crawl_id, jar, domain, path, name, cookie, changed_at)
        SELECT :crawl, 'null', d, CASE WHEN n = 1 THEN '/' ELSE '/' || n END, d || n, '{}',
            clock_timestamp() - make_interval(mins => 60 - n)
        FROM generate_series(1, 9) AS n, (VALUES ('a', 9), ('b', 4)) AS of(d, many)
        WHERE n <= many
        """,
    )

    assert pruning.prune_surplus(crawl.connection) == 5
    assert pruning.prune_surplus(crawl.connection) == 0
    assert names(crawl, "cookies") == ["a1", "a7", "a8", "a9", "b1", "b2", "b3", "b4"]


def test_tokens_of_commits_go_after_a_day(crawl):
    """A lost answer is asked for at once, if ever."""
    execute(
        crawl,
        """
        INSERT INTO commit_tokens (token, committed_at) VALUES
            (gen_random_uuid(), ago('25 hours')), (gen_random_uuid(), ago('23 hours'))
        """,
    )

    assert prune(crawl.connection, RULE["commit_tokens"]) == 1
    assert len(names(crawl, "commit_tokens", "token")) == 1


def test_handled_failures_go_after_a_month(crawl):
    """Open failures stay for ever, handled ones for a month; results are as they were."""
    for name in "ABC":
        crawl.failed(name)
    crawl.age(days=40)
    crawl.failed("D")
    crawl.handle(retry=False)
    crawl.age(days=20)
    crawl.failed("E")
    crawl.handle()
    crawl.age(days=11)
    crawl.failed("F")
    before = [crawl.state(name) for name in "ABCDEF"]

    assert prune(crawl.connection, RULE["failures"]) == 4
    assert len(names(crawl, "failures", "id")) == 2
    assert crawl.failures() == ["F"]
    assert [crawl.state(name) for name in "ABCDEF"] == before


def begin_runs(crawl, number):
    """Begin so many runs, one after the other."""
    for _ in range(number):
        crawl.connection.execute(runs.BEGIN, {"crawl": crawl.id})


def test_the_last_100_runs_of_a_crawl_are_kept(crawl):
    """Older ones go, however new; a crawl of few runs keeps all of them, however old."""
    other = graphs.Crawl(crawl.connection, "other")
    begin_runs(crawl, 103)
    begin_runs(other, 3)
    execute(crawl, "UPDATE runs SET started_at = ago('400 days') WHERE crawl_id = :id", id=other.id)

    assert prune(crawl.connection, RULE["runs"]) == 3
    kept = [
        [one.number for one in run_lists.runs(crawl.connection, one.id, limit=1000)]
        for one in (crawl, other)
    ]
    assert kept == [list(range(103, 3, -1)), [3, 2, 1]]


def test_workers_go_a_month_after_they_stopped(crawl):
    """A worker that lives, has claims, or belongs to the run under way stays; attempts stay too."""
    crawl.done("A")
    stopped, busy, recent, present = (crawl.new_worker() for _ in range(4))
    crawl.work("B")
    crawl.claim(worker=busy)
    execute(
        crawl,
        "UPDATE processes SET started_at = ago('40 days'), stopped_at = ago('31 days') "
        "WHERE id = ANY (:old)",
        old=[crawl.worker, stopped, busy, present],
    )
    execute(crawl, "UPDATE processes SET stopped_at = ago('29 days') WHERE id = :id", id=recent)
    execute(crawl, "UPDATE processes SET started_at = ago('32 days') WHERE id = :id", id=present)
    begin_runs(crawl, 1)
    execute(crawl, "UPDATE runs SET started_at = ago('33 days')")

    assert prune(crawl.connection, RULE["processes"]) == 2
    assert names(crawl, "workers", "id") == sorted([busy, recent, present])
    runs.finish(crawl.connection, crawl.id, 1)
    assert prune(crawl.connection, RULE["processes"]) == 1

    (attempt,) = status.attempts(crawl.connection, crawl.item_id("A"), limit=10)
    assert (attempt.worker, attempt.host, attempt.outcome) == (crawl.worker, None, "ok")
    assert crawl.new_worker() > present


def test_what_the_dead_had_of_limits_goes_after_a_day(crawl):
    """A slot that nobody asks for again does not keep what a dead worker had of it."""
    living, dead = crawl.worker, crawl.new_worker()
    execute(
        crawl,
        """
        INSERT INTO holdings (limit_id, worker_id, units, is_exclusive, until) VALUES
            (1, :living, 1, true, NULL), (1, :dead, 1, true, clock_timestamp()),
            (2, 2000000000, 0, false, NULL)
        """,
        living=living,
        dead=dead,
    )
    execute(crawl, "UPDATE processes SET stopped_at = ago('23 hours') WHERE id = :id", id=dead)
    assert prune(crawl.connection, RULE["holdings"]) == 1
    execute(crawl, "UPDATE processes SET stopped_at = ago('25 hours') WHERE id = :id", id=dead)

    assert prune(crawl.connection, RULE["holdings"]) == 1
    assert names(crawl, "holdings", "worker_id") == [living]


def test_a_queue_without_work_goes_after_a_month_and_comes_back_with_work(crawl):
    """Of hosts that are not seen again no queue is kept; one with work of any kind stays."""
    for name in "ABCD":
        crawl.work(name, data={"url": f"http://{name}.example/"})
    crawl.done("A")
    crawl.claim_pair("B")
    crawl.done("D")
    execute(crawl, "UPDATE queues SET next_at = ago('31 days')")
    execute(
        crawl,
        "UPDATE queues SET is_live = false WHERE slot_id <> "
        "(SELECT id FROM limits WHERE name = 'c.example')",
    )
    execute(
        crawl,
        "UPDATE queues SET next_at = ago('29 days') WHERE slot_id = "
        "(SELECT id FROM limits WHERE name = 'd.example')",
    )

    assert pruning.prune_queues(crawl.connection, crawl.id) == 1
    slots = "queues q JOIN limits l ON l.id = q.slot_id"
    assert names(crawl, slots, "l.name") == ["b.example", "c.example", "d.example"]

    crawl.do(CreateItem("A2", ["page"], {"url": "http://A.example/2"}))
    assert {claim.item.id for claim in crawl.claim()} >= {"A2"}


def test_a_queue_of_a_frontier_stays_with_what_is_set_for_it(crawl):
    """UF-8: its delay, block and limit outlive every URL of it."""
    for name in "AB":
        crawl.work(name, data={"url": f"http://{name}.example/"})
        crawl.done(name)
    execute(crawl, "UPDATE queues SET is_live = false, next_at = ago('31 days')")
    execute(
        crawl,
        "INSERT INTO frontier_queues (queue_id, crawl_id, delay) "
        "SELECT min(id), crawl_id, 60 FROM queues GROUP BY crawl_id",
    )

    assert pruning.prune_queues(crawl.connection, crawl.id) == 1
    assert names(crawl, "frontier_queues f JOIN queues q ON q.id = f.queue_id", "delay") == [60]


def test_a_step_is_a_thousand_rows(crawl):
    """However much is old, one transaction deletes little, and the next one the rest."""
    execute(
        crawl,
        "INSERT INTO commit_tokens (token, committed_at) SELECT gen_random_uuid(), ago('2 days') "
        "FROM generate_series(1, 1500)",
    )

    assert [prune(crawl.connection, RULE["commit_tokens"]) for _ in range(3)] == [STEP, 500, 0]


# Several workers


@pytest.fixture
def old_answers(engine):
    """Return the crawl's number, after three old tokens and two old queues were made."""
    with engine.begin() as connection:
        crawl = Crawl.of(connection)
        for name in "AB":
            crawl.done(name, data={"url": f"http://{name}.example/"})
        execute(crawl, "UPDATE queues SET is_live = false, next_at = ago('31 days')")
        execute(
            crawl,
            "INSERT INTO commit_tokens (token, committed_at) "
            "SELECT gen_random_uuid(), ago('2 days') FROM generate_series(1, 3)",
        )
    return crawl.id


def test_one_worker_prunes_at_a_time(engine, old_answers):
    """Who finds another one pruning leaves it to that one, and does not wait."""
    with engine.begin() as first, engine.begin() as second:
        assert prune(first, RULE["commit_tokens"]) == 3
        assert prune(second, RULE["commit_tokens"]) == 0
        assert pruning.prune_surplus(second) == 0
        assert pruning.prune_queues(second, old_answers) == 0


def test_what_others_have_locked_is_left(engine, old_answers):
    """Pruning waits for nobody: a row that somebody holds is deleted the next time."""
    with engine.begin() as holder, engine.begin() as pruner:
        holder.execute(sa.text("SELECT token FROM commit_tokens LIMIT 1 FOR UPDATE")).all()
        pruner.execute(sa.text("SET LOCAL lock_timeout = 1"))
        assert prune(pruner, RULE["commit_tokens"]) == 2
    with engine.begin() as pruner:
        assert prune(pruner, RULE["commit_tokens"]) == 1


def test_no_queue_is_deleted_while_a_commit_may_put_work_there(engine, old_answers):
    """A commit that has found a queue keeps it; nobody waits for the other."""
    with engine.begin() as committing, engine.begin() as pruner:
        crawls.share_crawl(committing, old_answers)
        pruner.execute(sa.text("SET LOCAL lock_timeout = 1"))
        assert pruning.prune_queues(pruner, old_answers) == 0
    with engine.begin() as pruner:
        assert pruning.prune_queues(pruner, old_answers) == 2


def test_minutes_of_tasks_go_after_a_day_and_of_limits_after_an_hour(crawl):
    """What was done by the minute is kept for as long as people look at it."""
    execute(
        crawl,
        """
        INSERT INTO task_minutes (crawl_id, minute, task_id) VALUES
            (:crawl, ago('25 hours'), 1), (:crawl, ago('23 hours'), 2)
        """,
    )
    execute(
        crawl,
        """
        INSERT INTO limit_minutes (limit_id, minute, requests) VALUES
            (1, ago('61 minutes'), 1), (2, ago('59 minutes'), 1)
        """,
    )

    assert prune(crawl.connection, RULE["task_minutes"]) == 1
    assert prune(crawl.connection, RULE["limit_minutes"]) == 1

    assert names(crawl, "task_minutes", "task_id") == [2]
    assert names(crawl, "limit_minutes", "limit_id") == [2]


def test_jobs_and_events_of_runners_go_after_a_month(crawl):
    """What is not over stays, and so does what happened to a crawl."""
    execute(
        crawl,
        """
        INSERT INTO jobs (crawl_id, origin, state, message, started_at, ended_at) VALUES
            (:crawl, 'runner', 'completed', 'old', ago('32 days'), ago('31 days')),
            (:crawl, 'runner', 'completed', 'young', ago('32 days'), ago('29 days')),
            (:crawl, 'runner', 'running', 'open', ago('32 days'), NULL)
        """,
    )
    execute(
        crawl,
        """
        INSERT INTO crawl_events (crawl_id, at, by, what) VALUES
            (NULL, ago('31 days'), 'r', 'runner up'), (NULL, ago('29 days'), 'r', 'runner gone'),
            (:crawl, ago('31 days'), 'ann', 'added')
        """,
    )

    assert [prune(crawl.connection, RULE[one]) for one in ("jobs", "crawl_events")] == [1, 1]
    assert names(crawl, "jobs", "message") == ["open", "young"]
    assert names(crawl, "crawl_events", "what") == ["added", "runner gone"]


def test_the_last_1000_events_of_a_crawl_are_kept(crawl):
    """However often a crawl runs, its history stays readable, and others' histories are whole."""
    execute(crawl, "INSERT INTO crawls (name) VALUES ('other')")
    ((other,),) = crawl.rows("SELECT id FROM crawls WHERE name = 'other'")
    for one, count in ((crawl.id, 1500), (other, 20)):
        execute(
            crawl,
            "INSERT INTO crawl_events (crawl_id, by, what) SELECT :one, n, 'ended' "
            "FROM generate_series(1, CAST(:count AS int)) AS n",
            one=one,
            count=count,
        )

    assert pruning.prune_events(crawl.connection, crawl.id) == 500
    assert pruning.prune_events(crawl.connection, crawl.id) == 0
    assert pruning.prune_events(crawl.connection, other) == 0
    kept = crawl.rows(
        "SELECT min(CAST(by AS int)), count(*) FROM crawl_events GROUP BY crawl_id ORDER BY 2"
    )
    assert [tuple(row) for row in kept] == [(1, 20), (501, 1000)]
