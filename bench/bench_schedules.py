"""How long schedules take that are due at once, and how soon an idle runner starts one that is due.

python bench/bench_schedules.py [--schedules 100000] [--due 1000] [--starts 20]
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import sqlalchemy as sa
from support import queued, servers
from support.projects import Project, until

from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.model.schedule_terms import NewSchedule
from scrapy_itemgraph.model.schedules import Rule
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.store.registry import schedule_starts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection

LOOKS = 300
DAYS_OFF = 3  # of runners; each schedule is due each six hours, or by the minute

FILL = """
    WITH made AS (
        INSERT INTO crawls (name, state, spider, project, start_arguments, queued_at)
        SELECT :name || n, 'finished', 's', 'p', '{}', clock_timestamp()
        FROM generate_series(1, :count) AS of(n) RETURNING id)
    INSERT INTO schedules (crawl_id, kind, spec, starts_at, next_at)
    SELECT id, :kind, :spec, '2026-01-01Z', now() + CAST(:due_in AS interval) FROM made
"""
SPIDER = """
class S(scrapy.Spider):
    name = "s"

    async def start(self):
        return
        yield
"""
SOON = "UPDATE schedules SET next_at = clock_timestamp() + make_interval(secs => :seconds)"
RUNS = """
    SELECT FROM crawls c
    WHERE c.state = 'active' OR EXISTS (SELECT FROM jobs j WHERE j.ended_at IS NULL)
"""
STARTS = """
    SELECT extract(epoch FROM j.created_at - j.due_at), extract(epoch FROM j.started_at - j.due_at),
        extract(epoch FROM p.started_at - j.due_at)
    FROM jobs j JOIN processes p ON p.id = j.worker_id ORDER BY j.id
"""


def main() -> None:
    """Print the times of both, each on a server of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=100_000)
    parser.add_argument("--due", type=int, default=1000)
    parser.add_argument("--starts", type=int, default=20)
    given = parser.parse_args()
    with servers.own_postgres() as server:
        at_once(server.url, given)
    with servers.own_postgres() as server, tempfile.TemporaryDirectory() as directory:
        one_by_one(Project(Path(directory), server.url), given.starts)


def at_once(url: str, given: argparse.Namespace) -> None:
    """Print how long schedules take that are due at once, in time and after days."""
    with ItemGraph.open(url, crawl="s", auto_migrate=True):
        pass
    engine = engines.sync_engine(url)
    fill(engine, "waits", given.schedules, ("every", "6h"), "1 hour")
    print(f"{given.schedules:,} schedules wait")
    looks = [timed(engine, schedule_starts.is_anything_due) for _ in range(LOOKS)]
    tell("a look that finds nothing", looks)
    late = f"-{DAYS_OFF} days"
    for name, count, rule, due_in in (
        ("in time", given.due, ("every", "6h"), "-1 second"),
        (f"{DAYS_OFF} days late, each six hours", given.due, ("every", "6h"), late),
        (f"{DAYS_OFF} days late, each minute", given.due // 20, ("cron", "* * * * *"), late),
    ):
        fill(engine, name, count, rule, due_in)
        began = time.perf_counter()
        steps = []
        while is_due(engine):
            steps.append(timed(engine, schedule_starts.start_due))
        took = time.perf_counter() - began
        tell(f"{count:,} due at once, {name}: {took:.2f} s in all; a transaction", steps)
    engine.dispose()


def fill(engine: sa.Engine, name: str, count: int, rule: tuple[str, str], due_in: str) -> None:
    """Add crawls at their end, with a schedule each."""
    kind, spec = rule
    values = {"name": name, "count": count, "kind": kind, "spec": spec, "due_in": due_in}
    with engine.begin() as connection:
        connection.execute(sa.text(FILL), values)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sa.text("VACUUM ANALYZE crawls, schedules, jobs"))


def is_due(engine: sa.Engine) -> bool:
    """Tell whether a schedule is due."""
    with engine.begin() as connection:
        return schedule_starts.is_anything_due(connection)


def timed(engine: sa.Engine, step: Callable[[Connection], object]) -> float:
    """Return how many milliseconds a step takes in a transaction of its own."""
    began = time.perf_counter()
    with engine.begin() as connection:
        step(connection)
    return 1000 * (time.perf_counter() - began)


def tell(what: str, times: Sequence[float]) -> None:
    """Print the median of some times, and the longest."""
    print(f"{what}: {statistics.median(times):.1f} ms in the median, {max(times):.1f} ms at most")


def one_by_one(project: Project, count: int) -> None:
    """Print how soon an idle runner makes a job of a due time, starts it, and its worker is up."""
    project.write(SPIDER, "ITEMGRAPH_AUTO_MIGRATE = True")
    with ItemGraph.open(project.url, crawl="s", auto_migrate=True):
        pass
    queued.add(project, "books", is_scheduled=True)
    with ItemGraph.open(project.url) as graph:
        daily = NewSchedule(rule=Rule.read({"every": "1d"}))
        graph.schedules.add("books", daily, by="ann@test")
    runner = queued.work(project)
    until(lambda: bool(project.rows("SELECT FROM runners")), project.log)
    try:
        for number in range(1, count + 1):
            seconds = 2 + random.random()  # at any moment of a round
            with queued.transaction(project.url) as connection:
                connection.execute(sa.text(SOON), {"seconds": seconds})
            until(lambda n=number: len(project.rows(STARTS)) == n, project.log)
            until(lambda: not project.rows(RUNS), project.log)
        for what, times in zip(
            ("job made", "job started", "worker registered"),
            zip(*project.rows(STARTS), strict=True),
            strict=True,
        ):
            tell(f"due to {what}", [1000 * float(one) for one in times])
    finally:
        queued.end(project, runner)


if __name__ == "__main__":
    main()
