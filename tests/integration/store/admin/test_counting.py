"""Counts of reports: exact up to a limit, beyond it estimates that are marked, in any state."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa
from conftest import new_database
from support.graphs import Crawl

from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.model.counts import Estimate
from scrapy_itemgraph.model.failure_filters import FailureFilter
from scrapy_itemgraph.model.operations import CreateItem
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.store import open_failures
from scrapy_itemgraph.store.admin import counting, explain, outstanding, status
from scrapy_itemgraph.store.registry import item_sweeps

if TYPE_CHECKING:
    from collections.abc import Iterator

ITEMS, SLOTS = 200, 7
NUMBERS = (
    *("waiting", "delayed", "claimed", "completed", "fresh", "due"),
    *("held", "gone", "failures", "refusals"),
)

# What the numbers mean, counted row by row.
PLAIN = """
    SELECT t.name,
        (SELECT count(*) FROM work w WHERE w.task_id = t.id
            AND w.token IS NULL AND w.not_before IS NULL) AS waiting,
        (SELECT count(*) FROM work w WHERE w.task_id = t.id
            AND w.not_before IS NOT NULL) AS delayed,
        (SELECT count(*) FROM work w WHERE w.task_id = t.id AND w.token IS NOT NULL) AS claimed,
        count(r.completed_at) AS completed,
        count(*) FILTER (WHERE stands AND (expires_at IS NULL OR due_at > now())) AS fresh,
        count(*) FILTER (WHERE stands AND due_at <= now()) AS due,
        count(*) FILTER (WHERE r.is_held AND NOT r.is_successful) AS held,
        count(*) FILTER (WHERE r.is_held AND r.is_successful) AS gone,
        (SELECT count(*) FROM failures f WHERE f.task_id = t.id AND f.handled_at IS NULL
            AND NOT f.is_refusal) AS failures,
        (SELECT count(*) FROM failures f WHERE f.task_id = t.id AND f.handled_at IS NULL
            AND f.is_refusal) AS refusals
    FROM tasks t
    CROSS JOIN LATERAL (
        SELECT r.*, completed_at IS NOT NULL AND NOT is_held AND task_version = t.version
            AND invalidated_at IS NULL AS stands
        FROM results r WHERE r.task_id = t.id) AS r
    GROUP BY t.id
"""

# In the order of their turn; claimed work is not in the list.
PLAIN_WORKLIST = """
    SELECT i.name FROM work w JOIN items i ON i.id = w.item_id JOIN tasks t ON t.id = w.task_id
    WHERE w.token IS NULL AND (CAST(:task AS text) IS NULL OR t.name = :task)
    ORDER BY w.is_stale, w.nice, w.seq
"""


STATES = (
    "tries = 0",
    "not_before = now() + interval '1 h'",
    "deaths = 2",
    "nice = -1",
    "is_stale = true",
    "worker_id = :worker, token = gen_random_uuid()",
)
RESULT = """
    INSERT INTO results (item_id, task_id, task_version, is_successful, is_held, completed_at,
        invalidated_at, expires_at, due_at)
    VALUES (:item, :task, :version, :successful, :held, CASE WHEN :is_done THEN now() END,
        CASE WHEN :is_invalid THEN now() END, CASE WHEN :has_ttl THEN now() END,
        CASE WHEN :has_ttl THEN now() + interval '1 h' * CAST(:due AS int) END)
"""
FAILURE = """
    INSERT INTO failures (item_id, task_id, is_refusal, error, handled_at, fingerprint)
    VALUES (:item, :task, :refusal, '{"type": "stalled"}', CASE WHEN :handled THEN now() END,
        md5('stalled')::uuid)
"""


@pytest.fixture(scope="module")
def crowded(server_url, template) -> Iterator[Crawl]:
    """Yield a crawl whose pairs are in all states, in several slots."""
    with new_database(server_url, template) as url:
        engine = engines.sync_engine(url)
        with engine.connect() as connection:
            crawl = Crawl.of(
                connection,
                parse={"tags": ["page"], "version": "2", "max_failures": 3},
                price={"tags": ["page"]},
                none={"tags": ["nothing"]},
            )
            drawn = random.Random(12)
            urls = [f"http://s{drawn.randrange(SLOTS)}.example/{n}" for n in range(ITEMS)]
            crawl.do(*(CreateItem(url, ["page"], {"url": url}) for url in urls))
            _scatter(crawl, drawn)
            connection.commit()
            yield crawl
            connection.rollback()
        engine.dispose()


@pytest.fixture
def crowd(crowded) -> Iterator[Crawl]:
    """Yield the same crawl, for a test whose changes are undone."""
    yield crowded
    crowded.connection.rollback()


def _scatter(crawl: Crawl, drawn: random.Random) -> None:
    """Put each pair's work, and its result with its failure, in states of their own."""
    work: dict[str, list[Any]] = defaultdict(list)
    results, failed = [], []
    pairs = crawl.rows("SELECT item_id, task_id FROM work ORDER BY 1, 2")
    for number, row in enumerate(pairs):
        pair = {"item": row.item_id, "task": row.task_id}
        work[drawn.choice(STATES)].append(pair)
        is_held, is_done, has_ttl = (drawn.random() < share for share in (0.4, 0.9, 0.6))
        result = {"held": is_held, "version": drawn.choice("12"), "is_done": is_done}
        result |= {"has_ttl": is_done and has_ttl, "is_invalid": drawn.random() < 0.2}
        result |= {"due": drawn.choice([None, -1, 1])}
        result |= {"successful": not is_held or number % 5 == 0}
        results.append(pair | result)
        if is_held and not result["successful"] and number > len(pairs) // 2:
            failed.append(pair | {"refusal": drawn.random() < 0.4, "handled": drawn.random() < 0.2})
    for state, those in work.items():
        change = f"UPDATE work SET {state} WHERE item_id = :item AND task_id = :task"
        worker = {"worker": crawl.worker} if ":worker" in state else {}
        crawl.connection.execute(sa.text(change), [one | worker for one in those])
    crawl.connection.execute(sa.text(RESULT), results)
    crawl.connection.execute(sa.text(FAILURE), failed)


def plain(crawl: Crawl) -> dict[str, dict[str, int]]:
    """Return the numbers of each task, counted row by row."""
    rows = [row._asdict() for row in crawl.rows(PLAIN)]
    return {row["name"]: {name: row[name] for name in NUMBERS} for row in rows}


def numbers(task: status.TaskState) -> dict[str, int]:
    """Return a task's numbers."""
    return {name: getattr(task, name) for name in NUMBERS}


def test_counts_are_exact_up_to_the_limit(crowd):
    """Each number of each task is what counting the rows one by one gives, in every state."""
    found = {task.name: task for task in status.tasks(crowd.connection, crowd.id)}
    expected = plain(crowd)

    assert {name: numbers(found[name]) for name in expected} == expected
    assert all(min(one.values()) > 0 for one in expected.values())
    assert set(numbers(found["none"]).values()) == {0}
    assert {task.estimated for task in found.values()} == {()}
    assert status.items(crowd.connection, crowd.id) == ITEMS


@pytest.mark.parametrize("is_analysed", [False, True])
def test_counts_beyond_the_limit_are_marked_estimates(crowd, monkeypatch, is_analysed):
    """What is above the limit is an estimate and named so; what is below stays exact.

    The tables are small here, so that the sample has all of them, and an estimate is only rounded.
    """
    if is_analysed:
        crowd.connection.exec_driver_sql("ANALYZE")
    limit = 40
    monkeypatch.setattr(counting, "MOST", limit)

    found = {task.name: task for task in status.tasks(crowd.connection, crowd.id)}

    is_estimated = set()
    for name, expected in plain(crowd).items():
        for which, number in numbers(found[name]).items():
            marked = which in found[name].estimated
            assert marked == isinstance(number, Estimate)
            assert abs(number - expected[which]) <= (5 if marked else 0), (name, which)
            assert marked or number <= limit
            is_estimated.add(marked)
    assert is_estimated == {True, False}
    document = status.status(crowd.connection, crowd.id)
    assert (document["items"], document["estimated"]) == (ITEMS, ("items",))


def test_a_small_table_is_counted_whole_after_a_first_look(crowd, monkeypatch):
    """What the first look did not count to its end is exact where a sample is the whole table."""
    monkeypatch.setattr(counting, "AT_FIRST", 1)
    monkeypatch.setattr(counting, "LEAST", 1)

    found = {task.name: task for task in status.tasks(crowd.connection, crowd.id)}

    expected = plain(crowd)
    assert {name: numbers(found[name]) for name in expected} == expected
    assert {task.estimated for task in found.values()} == {()}


def test_a_report_counts_the_cheapest_as_far_as_its_rows_go(crowd, monkeypatch):
    """Of large tables a report counts so many rows one by one; the other numbers are marked."""
    monkeypatch.setattr(counting, "AT_FIRST", 1)
    monkeypatch.setattr(counting, "LEAST", 1)
    monkeypatch.setattr(counting, "IN_ALL", budget := 60)
    monkeypatch.setattr(counting, "sampled_share", lambda *_: 1 - 1e-9)

    found = {task.name: task for task in status.tasks(crowd.connection, crowd.id)}

    exact = 0
    for name, expected in plain(crowd).items():
        for which, number in numbers(found[name]).items():
            assert isinstance(number, Estimate) == (which in found[name].estimated)
            assert abs(number - expected[which]) <= (5 if isinstance(number, Estimate) else 0)
            exact += 0 if isinstance(number, Estimate) or number <= 1 else number
    assert 0 < exact <= budget


def test_a_group_of_which_the_sample_has_nothing_is_not_told_as_empty(crowd, monkeypatch):
    """An estimate is not below what was counted before counting stopped."""
    monkeypatch.setattr(counting, "MOST", 50)
    monkeypatch.setattr(counting, "PAGES", 1e-9)

    assert status.items(crowd.connection, crowd.id) == 50


def test_another_crawl_is_not_in_the_numbers(crowd, monkeypatch):
    """A crawl that has nothing has only zeros, beside a large one and with the same tasks."""
    monkeypatch.setattr(counting, "MOST", 10)
    empty = Crawl(crowd.connection, "empty")
    empty.register(parse={"tags": ["page"]})

    (task,) = status.tasks(empty.connection, empty.id)

    assert set(numbers(task).values()) == {0}
    assert status.items(empty.connection, empty.id) == 0


@pytest.mark.parametrize("limit", [1, 5, 40, 1000])
@pytest.mark.parametrize("task", [None, "parse", "none"])
def test_the_worklist_is_in_the_order_of_all_queues(crowd, limit, task):
    """The worklist's first are those of all queues, with delayed and suspected work."""
    expected = [
        row.name for row in crowd.connection.execute(sa.text(PLAIN_WORKLIST), {"task": task})
    ]

    found = outstanding.worklist(crowd.connection, crowd.id, task=task, limit=limit)

    assert [row.item for row in found] == expected[:limit]


@pytest.mark.parametrize("limit", [1, 7, 1000])
@pytest.mark.parametrize("task", [None, "parse"])
def test_open_failures_are_the_oldest_of_all_tasks(crowd, limit, task):
    """Failures and refusals of all tasks are listed in the order in which they were recorded."""
    expected = crowd.rows("""
        SELECT f.id, t.name FROM failures f JOIN tasks t ON t.id = f.task_id
        WHERE f.handled_at IS NULL ORDER BY f.id
    """)
    expected = [row.id for row in expected if task in {None, row.name}]

    def read(**order):
        which = FailureFilter(task=task)
        return open_failures.page(crowd.connection, crowd.id, which, limit=limit, **order)

    first, newest = read(), read(newest_first=True)

    assert [row.id for row in first.rows] == expected[:limit]
    assert [row.id for row in newest.rows] == expected[::-1][:limit]
    assert not first.is_cut
    if limit < len(expected):
        assert read(after=first.next).rows[0].id == expected[limit]
        assert read(after=newest.next, newest_first=True).rows[0].id == expected[-limit - 1]
    one = FailureFilter(failures=[expected[-1]])
    assert [row.id for row in open_failures.page(crowd.connection, crowd.id, one).rows] == [
        expected[-1]
    ]


def test_a_run_counts_as_status_does(crowd, monkeypatch):
    """The lines that a run logs have the numbers of `status`; estimates are marked there too."""
    crowd.connection.execute(sa.text("UPDATE tasks SET is_enabled = false WHERE name = 'price'"))
    expected = plain(crowd)

    exact = status.summary(crowd.connection, crowd.id)
    monkeypatch.setattr(counting, "MOST", 10)
    lines = "\n".join(status.summary(crowd.connection, crowd.id).lines())

    both = expected["parse"], expected["price"]
    assert exact.fresh == sum(one["fresh"] for one in both)
    assert exact.claimed == sum(one["claimed"] for one in both)
    assert (exact.waiting, exact.stopped) == (0, expected["parse"]["waiting"])
    assert exact.disabled == expected["price"]["waiting"]
    assert exact.lost == exact.failures > 0
    assert f"~{round(exact.disabled, -1)} of disabled tasks" in lines
    assert " more than " not in lines


def test_blocked_slots_and_pairs_given_up_are_counted(crowd):
    """Work in a slot that a person blocked is told apart, and so is what is held for good."""
    crowd.connection.execute(sa.text("UPDATE tasks SET max_failures = NULL"))
    before = status.summary(crowd.connection, crowd.id)
    crowd.connection.execute(
        sa.text("""
            UPDATE limits SET blocked_by = 'person', blocked_until = now() + interval '1 h'
            WHERE name IN ('s1.example', 's2.example')
        """)
    )
    (blocked,) = crowd.rows("""
        SELECT count(*) AS number FROM work w JOIN queues q ON q.id = w.queue_id
        JOIN limits l ON l.id = q.slot_id
        WHERE w.token IS NULL AND w.not_before IS NULL AND l.blocked_by = 'person'
    """)
    (given_up,) = crowd.rows("""
        SELECT count(*) AS number FROM results r
        WHERE r.is_held AND NOT r.is_successful AND NOT EXISTS (
            SELECT FROM failures f WHERE f.item_id = r.item_id AND f.task_id = r.task_id
                AND f.handled_at IS NULL)
    """)

    after = status.summary(crowd.connection, crowd.id)

    assert after.blocked == blocked.number > 0
    assert after.waiting == before.waiting - blocked.number
    assert after.given_up == given_up.number > 0


def test_explain_marks_an_estimate_of_failures(crowd, monkeypatch):
    """`explain` says how many failures stop a task, as an estimate where they are too many."""
    (row,) = crowd.rows("SELECT name FROM items ORDER BY id LIMIT 1")
    number = plain(crowd)["parse"]["failures"]

    def why() -> str:
        (one,) = explain.explain(crowd.connection, crowd.id, crowd.item_id(row.name), "parse")
        return " ".join(one.reasons)

    assert f"stopped by {number} open failures" in why()
    monkeypatch.setattr(counting, "MOST", 3)
    assert "stopped by ~" in why()
    monkeypatch.setattr(counting, "PAGES", 1e-9)
    assert "stopped by ~3 open failures" in why()


def test_an_open_sweep_of_many_items_is_estimated(crowd, monkeypatch):
    """How many items a sweep has still to reach is an estimate above the limit, each item once."""
    item_sweeps.open_sweep(crowd.connection, crowd.id, crowd.task_id("parse"))
    crowd.connection.execute(sa.text("UPDATE sweeps SET tags = '{page,book}'"))
    book = "INSERT INTO tags (item_id, tag_name, crawl_id) SELECT id, 'book', :crawl FROM items"
    crowd.connection.execute(sa.text(book), {"crawl": crowd.id})

    (exact,) = status.status(crowd.connection, crowd.id)["sweeps"]
    monkeypatch.setattr(counting, "MOST", 10)
    (estimate,) = status.status(crowd.connection, crowd.id)["sweeps"]

    assert (exact["left"], exact["estimated"]) == (ITEMS, ())
    assert (estimate["left"], estimate["estimated"]) == (ITEMS, ("left",))


def test_estimates_are_marked_in_python(crawl, database, monkeypatch):
    """`ItemGraph` gives numbers that are ordinary ints, and names the estimates beside them."""
    for number in range(12):
        crawl.work(f"I{number}")
    crawl.connection.commit()
    monkeypatch.setattr(counting, "MOST", 5)

    with ItemGraph.open(database, crawl="books") as graph:
        (task,) = graph.tasks.list()

    assert (task.waiting + 1, task.estimated) == (13, ("waiting",))
