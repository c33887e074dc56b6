"""Latencies: in how many seconds websites answered, by task and by slot, as workers tell.

Only workers with ITEMGRAPH_KEEP_PAGES tell it. As tallies are, these rows are shared, and written
last in a transaction and in their order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.store.columns import typed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

    from scrapy_itemgraph.model.latencies import Latencies
    from scrapy_itemgraph.model.tallies import Tallies

MOST_TASKS = 10_000
MOST_SLOTS = 100
MOST_LOOKED_AT = 2_000  # slots that answered lately, of which the busiest are shown


def _more(table: str) -> str:
    """Return what adds a histogram to the one that a row has."""
    return f"""answers = ARRAY(
            SELECT coalesce(least(before, {2**62}), 0) + coalesce(told, 0)
            FROM unnest({table}.answers, excluded.answers) WITH ORDINALITY AS b(before, told, place)
            ORDER BY place),
        seconds = {table}.seconds + excluded.seconds"""  # noqa: S608 - our own number


ADD_OF_TASKS = text(f"""
    INSERT INTO task_latencies AS t (crawl_id, task_id, answers, seconds)
    SELECT :crawl, task_id, CAST(answers AS bigint[]), seconds
    FROM unnest(CAST(:tasks AS int[]), CAST(:answers AS text[]), CAST(:seconds AS float8[]))
        AS told(task_id, answers, seconds)
    ORDER BY task_id
    ON CONFLICT (crawl_id, task_id) DO UPDATE SET {_more("t")}
""")  # noqa: S608 - our own text

ADD_OF_SLOTS = text(f"""
    INSERT INTO slot_latencies AS s (limit_id, told_at, answers, seconds)
    SELECT l.id, clock_timestamp(), CAST(told.answers AS bigint[]), told.seconds
    FROM unnest(CAST(:names AS text[]), CAST(:answers AS text[]), CAST(:seconds AS float8[]))
        AS told(name, answers, seconds)
    JOIN limits l ON l.kind = 'slot' AND l.name = told.name
    ORDER BY l.id
    ON CONFLICT (limit_id) DO UPDATE SET told_at = excluded.told_at, {_more("s")}
""")  # noqa: S608 - our own text

OF_TASKS = text("""
    SELECT k.name AS task, t.answers, t.seconds
    FROM task_latencies t LEFT JOIN tasks k ON k.id = t.task_id
    WHERE t.crawl_id = :crawl ORDER BY t.task_id LIMIT :limit
""")

# The busiest of those that answered in the last hour.
OF_SLOTS = text("""
    SELECT l.name AS slot, s.answers, s.seconds
    FROM (SELECT * FROM slot_latencies
        WHERE told_at > (SELECT clock_timestamp()) - interval '1 hour'
        ORDER BY told_at DESC LIMIT :most) AS s
    JOIN limits l ON l.id = s.limit_id
    ORDER BY (SELECT sum(one) FROM unnest(s.answers) AS one) DESC, l.name LIMIT :limit
""")


class TaskLatencies(NamedTuple):
    """How many answers to a task's requests came within each of `model.latencies.BOUNDS`.

    Each is counted once, under its least bound; the last number is of what came later. `task` is
    None of what is of none, such as robots.txt; `seconds` is what all of them took together.
    """

    task: str | None
    answers: list[int]
    seconds: float


class SlotLatencies(NamedTuple):
    """The same of a slot, that is a website, for all crawls of the database."""

    slot: str
    answers: list[int]
    seconds: float


def add(connection: Connection, crawl_id: int, told: Tallies) -> None:
    """Add what a worker tells; slots that are not known are left out."""
    if told.task_latencies:
        given = {"crawl": crawl_id, "tasks": list(told.task_latencies)}
        connection.execute(ADD_OF_TASKS, given | _histograms(told.task_latencies.values()))
    if told.slot_latencies:
        given = {"names": list(told.slot_latencies)}
        connection.execute(ADD_OF_SLOTS, given | _histograms(told.slot_latencies.values()))


def _histograms(told: Iterable[Latencies]) -> dict[str, list[object]]:
    counted = list(told)
    return {
        "answers": [f"{{{','.join(map(str, one.answers))}}}" for one in counted],
        "seconds": [one.seconds for one in counted],
    }


def of_tasks(connection: Connection, crawl_id: int) -> list[TaskLatencies]:
    """Return how a crawl's tasks were answered, what is of no task first."""
    rows = connection.execute(OF_TASKS, {"crawl": crawl_id, "limit": MOST_TASKS})
    return typed(rows, TaskLatencies)


def of_slots(connection: Connection) -> list[SlotLatencies]:
    """Return how the busiest slots answered of those that did in the last hour."""
    rows = connection.execute(OF_SLOTS, {"most": MOST_LOOKED_AT, "limit": MOST_SLOTS})
    return typed(rows, SlotLatencies)
