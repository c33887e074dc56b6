"""What claiming and committing cost on a small and on a large graph, side by side.

Run it by `make bench`. The absolute figures are this machine's; the ratios are what matters.
"""

from __future__ import annotations

import multiprocessing
import statistics
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

if __name__ in {"__main__", "__mp_main__"}:
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.filled import ONE, Pages, fill, settle
from support.races import Crawl, ended

from scrapy_itemgraph.model.operations import CreateItem, UpdateMetadata
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres import migrate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scrapy_itemgraph.model.work import Claim

SMALL, LARGE = 10_000, 1_000_000
BATCH = 25
ROUNDS = 60
SECONDS = 6.0


@contextmanager
def counting(engine: sa.Engine) -> Iterator[list[str]]:
    """Collect the statements that are sent, without BEGIN and COMMIT."""
    sent: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        sent.append(statement)

    sa.event.listen(engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        sa.event.remove(engine, "before_cursor_execute", note)


class Bench:
    """One graph, and what is measured on it."""

    def __init__(self, crawl: Crawl, count: int) -> None:
        self.crawl = crawl
        self.count = count
        self.worker = crawl.worker()
        self.parse = crawl.only("parse")
        self.times: dict[str, list[float]] = {}
        self.statements: dict[str, int] = {}
        self._made = 0

    def timed(self, name: str, function: Callable[[sa.Connection], Any]) -> Any:
        """Run a function in a transaction, and note how long both took."""
        with counting(self.crawl.engine) as sent:
            start = time.perf_counter()
            with self.crawl.engine.begin() as connection:
                result = function(connection)
            self.times.setdefault(name, []).append((time.perf_counter() - start) * 1000)
        self.statements[name] = len(sent)
        return result

    def claim(self) -> list[Claim]:
        """Claim a batch."""
        name = f"claim {BATCH}"
        return self.timed(name, lambda c: self.crawl.claim(c, self.worker, BATCH, tasks=self.parse))

    def commit(self, claims: list[Claim], creates: int) -> None:
        """Commit a batch, each execution with as many creates, of which nine in ten are known."""
        changesets = [
            ended(claim, UpdateMetadata({"title": "A page"}), *self._creates(creates))
            for claim in claims
        ]
        self.timed(
            f"commit {BATCH}, {creates} creates each",
            lambda c: self.crawl.apply(c, *changesets, worker=self.worker),
        )

    def _creates(self, number: int) -> Iterator[CreateItem]:
        for _ in range(number):
            self._made += 1
            is_new = self._made % 10 == 0
            known = self._made * 7919 % self.count + 1
            name = f"new-{self.worker}-{self._made}" if is_new else f"i{known}"
            yield CreateItem(name, tags=["page"], data={"url": f"http://{ONE}/{name}"})

    def round(self) -> None:
        """Do one of each."""
        for creates in (5, 10):
            self.commit(self.claim(), creates)


def work_off(url: str, count: int, seconds: float) -> int:
    """Claim and commit for a while, in a process of its own; return how many executions."""
    engine = engines.sync_engine(url)
    bench = Bench(Crawl(engine, Pages), count)
    done, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        claims = bench.claim()
        bench.commit(claims, 5)
        done += len(claims)
    engine.dispose()
    return done


def main() -> None:
    """Measure, and print."""
    from conftest import new_database
    from support import servers

    with ExitStack() as stack:
        server = stack.enter_context(servers.server())
        benches = []
        for count in (SMALL, LARGE):
            url = stack.enter_context(new_database(server))
            engine = engines.sync_engine(url)
            stack.callback(engine.dispose)
            with engine.begin() as connection:
                migrate.ensure(connection, auto=True)
            start = time.perf_counter()
            crawl = fill(engine, count)
            settle(engine)
            print(f"{count:>9,} items filled in {time.perf_counter() - start:.0f} s", flush=True)
            benches.append((url, Bench(crawl, count)))
        _alternate([bench for _, bench in benches])
        _throughput(*benches[1])


def _alternate(benches: list[Bench]) -> None:
    for number in range(ROUNDS + 5):
        for bench in benches:
            bench.round()
        if number == 4:  # warm
            for bench in benches:
                bench.times.clear()
    small, large = benches
    columns = f"{small.count:>10,}{large.count:>11,}{'ratio':>7}"
    print(f"\n{'ms':<24}median{columns}   fastest{columns}{'statements':>12}")
    for name, times in small.times.items():
        figures = []
        for figure in (statistics.median, min):
            one, other = figure(times), figure(large.times[name])
            figures.append(f"{one:>10.2f}{other:>11.2f}{other / one:>7.2f}")
        print(f"{name:<30}{figures[0]}{figures[1]:>38}{large.statements[name]:>12}")


def _throughput(url: str, bench: Bench) -> None:
    print(f"\nexecutions/s at {bench.count:,}, 5 creates each, nine in ten known")
    context = multiprocessing.get_context("spawn")
    for processes in (1, 2, 4):
        with context.Pool(processes) as pool:
            given = [(url, bench.count, SECONDS)] * processes
            done = sum(pool.starmap(work_off, given))
        print(f"{processes} processes: {done / SECONDS:,.0f}", flush=True)


if __name__ == "__main__":
    main()
