"""How long it takes to give a runner's free places their crawls, beside many that wait or ended.

python bench/bench_assignment.py [--active 10000] [--finished 1000000]
"""

from __future__ import annotations

import argparse
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import sqlalchemy as sa
from support import servers

from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.model.runners import Terms
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.store.registry import places, runners

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

PLACES = 4
ROUNDS, WARM_UP = 320, 20

FILL = sa.text("""
    INSERT INTO crawls (name, identity, state, spider, project, start_arguments, nice, queued_at)
    SELECT 'crawl ' || :state || n, NULL, :state, 's', 'p', '{}', n % 5, clock_timestamp()
    FROM generate_series(1, :count) AS of(n)
""")


def main() -> None:
    """Fill a server of its own, and print the times of each step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--active", type=int, default=10_000)
    parser.add_argument("--finished", type=int, default=1_000_000)
    given = parser.parse_args()
    with servers.own_postgres() as server:
        with ItemGraph.open(server.url, crawl="s", auto_migrate=True):
            pass
        engine = engines.sync_engine(server.url)
        with engine.begin() as connection:
            for state, count in (("active", given.active), ("finished", given.finished)):
                connection.execute(FILL, {"state": state, "count": count})
        print(f"{given.active:,} crawls are active, {given.finished:,} have ended")
        for why, change in CASES.items():
            with engine.begin() as connection:
                connection.execute(sa.text(change))
            with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.execute(sa.text("VACUUM ANALYZE crawls"))
            measure(engine, why)
        engine.dispose()


CASES = {
    "places are given": "SELECT",
    "nothing fits": "UPDATE crawls SET tag = 'x' WHERE state = 'active'",
}


def measure(engine: sa.Engine, why: str) -> None:
    """Print how long a look and an assignment take; nothing of it is kept."""
    steps: dict[str, Callable[[Connection, int, int], object]] = {
        "look": places.look,
        "assign": lambda connection, *own: places.assign(connection, *own, "h"),
        "preempt": places.preempt,
    }
    terms = Terms(name="r", project="p", places=PLACES)
    with engine.connect() as connection:  # one, as a runner has it
        for name, step in steps.items():
            times = [timed(connection, terms, step) for _ in range(ROUNDS)][WARM_UP:]
            times.sort()
            median, p99 = times[len(times) // 2], times[len(times) * 99 // 100]
            print(f"{why}, {name}: {median:.2f} ms in the median, {p99:.2f} ms at the 99th of 100")


def timed(
    connection: Connection, terms: Terms, step: Callable[[Connection, int, int], object]
) -> float:
    """Return how many milliseconds a step of a new runner takes, and undo it."""
    given = {"host": "h", "process_id": 1, "lease": timedelta(minutes=1), "running": {}}
    process, runner = runners.register(connection, terms, **given)
    began = time.perf_counter()
    step(connection, runner, process.id)
    took = 1000 * (time.perf_counter() - began)
    connection.rollback()
    return took


if __name__ == "__main__":
    main()
