"""What ten thousand and ten million items cost, in one slot and in ten thousand, side by side.

Claims, commits, creates and deletions of a hundred; bytes an item; what people ask; after a churn
in which as much goes as comes, and once it is vacuumed; and while a transaction that is held open
elsewhere keeps vacuum from cleaning up. Each graph is measured in turns with one of ten thousand
items: the ratios are what matters. Run it by `make bench-scale`; with ten million items it needs
15 GB under the temporary directory, and with an hour of churn for each size a night.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from bench_hot_path import Bench
from support.filled import BIG_TABLES, ONE, Filled, fill, settle
from support.races import ended

from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.model.operations import CreateItem, DeleteItem, UpdateMetadata
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres import migrate
from scrapy_itemgraph.store import in_flight

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import sqlalchemy as sa

SMALL = 10_000
SIZES = (100_000, 1_000_000, 10_000_000)
SLOTS = (1, 10_000)
BATCH = 100
WARM = 10  # rounds that do not count
MINUTE = 60.0


class Graph(Bench):
    """A graph of a size, and what is measured on it."""

    def __init__(self, crawl: Filled, url: str, slots: int) -> None:
        super().__init__(crawl, crawl.count)
        self.url = url
        self._slots = slots
        self._made = 0
        self._at = 0

    def round(self) -> None:
        """Claim, commit, create and delete a hundred, so that the graph keeps its size."""
        crawl = self.crawl
        claims = self.timed("claim", lambda c: crawl.claim(c, self.worker, BATCH, tasks=self.parse))
        assert len(claims) > BATCH / 2, f"{len(claims)} claimed"
        changesets = [ended(claim, UpdateMetadata({"title": "A page"})) for claim in claims]

        def commit(connection: sa.Connection) -> None:
            crawl.apply(connection, *changesets, worker=self.worker)
            in_flight.write(connection, self.worker, ())  # as a worker's commit does

        self.timed("commit", commit)
        creates = [self._create() for _ in range(BATCH)]
        self.timed("create", lambda c: crawl.operate(c, *creates))
        deletes = [DeleteItem(claim.item.id) for claim in claims]
        self.timed("delete", lambda c: crawl.operate(c, *deletes))

    def _create(self) -> CreateItem:
        self._made += 1
        host = f"m{1 + self._made % self._slots}.example" if self._slots > 1 else ONE
        name = f"new-{self.worker}-{self._made}"
        return CreateItem(name, tags=["page"], data={"url": f"http://{host}/{name}"})

    def asked(self) -> dict[str, list[float]]:
        """Return the milliseconds of what people ask, the first time and in the median of five."""
        times: dict[str, list[float]] = {}
        with ItemGraph.open(self.url, crawl=self.crawl_name) as graph:
            asks: dict[str, Callable[[], Any]] = {
                "status": graph.status,
                "worklist": graph.worklist,
                "explain": lambda: graph.explain(f"i{self.count // 2}"),
                "failures": graph.failures.list,
            }
            for name, ask in asks.items():
                each = [_milliseconds(ask) for _ in range(6)]
                times[name] = [each[0], statistics.median(each[1:])]
        return times

    @property
    def crawl_name(self) -> str:
        """The crawl's name."""
        ((name,),) = self.crawl.rows("SELECT name FROM crawls WHERE id = :id", id=self.crawl.id)
        return str(name)

    def bytes_an_item(self) -> dict[str, float]:
        """Return the bytes of tables with their indexes, by the item."""
        sizes = {
            table: self.crawl.rows("SELECT pg_total_relation_size(:table)", table=table)[0][0]
            for table in BIG_TABLES
        }
        return {name: size / self.count for name, size in sizes.items()}


def _milliseconds(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return (time.perf_counter() - start) * 1000


def _p99(times: list[float]) -> float:
    return sorted(times)[math.ceil(0.99 * len(times)) - 1]


@contextmanager
def filled(server: str, count: int, slots: int) -> Iterator[Graph]:
    """Yield a graph of so many items in a database of its own, and drop it."""
    from conftest import new_database

    with new_database(server) as url:
        engine = engines.sync_engine(url)
        with engine.begin() as connection:
            migrate.ensure(connection, auto=True)
        start = time.perf_counter()
        crawl = fill(engine, count, slots=slots, wide=0, failing=10)
        settle(engine)
        print(f"{count:>12,} items filled in {time.perf_counter() - start:.0f} s", flush=True)
        yield Graph(crawl, url, slots)
        engine.dispose()


def alternate(graphs: list[Graph], *, rounds: int = 0, minutes: float = 0.0) -> int:
    """Do rounds in turns, so many or for so long, and forget earlier times; return how many."""
    for graph in graphs:
        graph.times.clear()
    done, end = 0, time.monotonic() + minutes * MINUTE
    while done < rounds or time.monotonic() < end:
        for graph in graphs:
            graph.round()
        done += 1
    return done


@contextmanager
def held(graphs: list[Graph]) -> Iterator[None]:
    """Hold a snapshot of each graph's database open."""
    with ExitStack() as stack:
        for graph in graphs:
            connection = stack.enter_context(graph.crawl.engine.connect())
            connection.execution_options(isolation_level="REPEATABLE READ")
            connection.exec_driver_sql("SELECT count(*) FROM crawls")
        yield


def vacuum(graph: Graph) -> None:
    """Take the dead entries out of the indexes of work, which autovacuum leaves while few are."""
    engine = graph.crawl.engine.execution_options(isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql("VACUUM (INDEX_CLEANUP ON) work")


def show(what: str, small: Graph, large: Graph) -> None:
    """Print the times of operations, and their ratios."""
    print(f"\n{what}, ms for {BATCH}{'median':>14}{'p99':>38}")
    columns = f"{small.count:>10,}{large.count:>12,}{'ratio':>7}"
    print(f"{'':<10}{columns}    {columns}")
    for name, times in small.times.items():
        figures = []
        for figure in (statistics.median, _p99):
            one, other = figure(times), figure(large.times[name])
            figures.append(f"{one:>10.1f}{other:>12.1f}{other / one:>7.2f}")
        print(f"{name:<10}{figures[0]}    {figures[1]}", flush=True)


def speed(graph: Graph, last: int | None = None) -> float:
    """Return how many executions a second the rounds did, of the last ones alone if need be."""
    each = [times[-last:] if last else times for times in graph.times.values()]
    return BATCH * len(each[0]) / (sum(map(sum, each)) / 1000)


def measure(server: str, count: int, slots: int, given: argparse.Namespace) -> None:
    """Compare a size with the small one, and print."""
    print(f"\n== {count:,} items in {slots:,} slots", flush=True)
    with filled(server, SMALL, slots) as small, filled(server, count, slots) as large:
        graphs = [small, large]
        for graph in graphs:
            sizes = graph.bytes_an_item()
            told = ", ".join(f"{name} {size:,.0f}" for name, size in sizes.items() if size >= 1)
            print(f"{graph.count:>12,} items: {sum(sizes.values()):,.0f} bytes an item ({told})")
        print(f"\nasked, ms{'first, then median of five':>40}")
        asked = [graph.asked() for graph in graphs]
        for name in asked[0]:
            first, then = zip(*(one[name] for one in asked), strict=True)
            texts = [f"{a:>10.1f}{b:>9.1f}" for a, b in zip(first, then, strict=True)]
            print(f"{name:<10}{'    '.join(texts)}", flush=True)
        alternate(graphs, rounds=WARM)
        alternate(graphs, rounds=given.rounds)
        show("at first", small, large)
        if given.churn:
            done = alternate(graphs, minutes=given.churn)
            alternate(graphs, rounds=given.rounds)
            show(f"after {given.churn:g} minutes of churn ({done:,} rounds)", small, large)
            for graph in graphs:
                vacuum(graph)
            alternate(graphs, rounds=given.rounds)
            show("then vacuumed", small, large)
        if given.held:
            before = [speed(graph) for graph in graphs]
            with held(graphs):
                done = alternate(graphs, minutes=given.held)
                alternate(graphs, rounds=given.rounds)
            show(f"after {given.held:g} minutes with a snapshot held ({done:,})", small, large)
            for graph, was in zip(graphs, before, strict=True):
                now = speed(graph)
                print(f"{graph.count:>12,} items: {now:,.0f} a second, {now / was:.2f} of before")


def main() -> None:
    """Read the options, measure each size in one slot and in many, and print."""
    from support import servers

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--slots", type=int, nargs="*", default=SLOTS)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--churn", type=float, default=60.0, help="minutes")
    parser.add_argument("--held", type=float, default=10.0, help="minutes")
    given = parser.parse_args()
    with servers.server() as server:
        for slots in given.slots:
            for count in given.sizes:
                measure(server, count, slots, given)


if __name__ == "__main__":
    main()
