"""How fast a crawl is loaded from a dump, beside COPY of the very same rows into the same tables.

A crawl has items with a name, a tag, data, a result and three pieces of outstanding work. It is
dumped, loaded under another name, and its rows are copied in; both into empty tables.
The memory of dump and load is that of their processes at its highest. `make bench-parts` runs it,
or alone, with the number of items and of rounds as its arguments.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import bench_add
import psutil
from conftest import new_database
from end_to_end import backends
from support import servers
from support.filled import fill

from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres import migrate

ITEMS = 100_000
ROUNDS = 3
AIM = 0.4  # of the rate of COPY
TABLES = ("items", "aliases", "tags", "work", "results", "attempts", "failures")


def main() -> None:
    """Measure in turns, and print rates, their ratio and the memory that it took."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else ITEMS
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else ROUNDS
    ratios: list[float] = []
    memory: list[int] = []

    def run(url: str, *arguments: object) -> None:
        memory.append(_run(url, *map(str, arguments)))

    with (
        servers.open_directory() as directory,
        backends.postgres(directory) as backend,
        tempfile.TemporaryDirectory() as files,
    ):
        dump = Path(files) / "dump"
        for number in range(1, rounds + 1):
            with new_database(backend.url) as url:
                _fill(url, count)
                memory.clear()
                dumped = bench_add.costs(backend.pid, lambda: run(url, "dump", "books", "-o", dump))
                bench_add.copy_out(url, Path(files), TABLES)
                loaded = bench_add.costs(
                    backend.pid, lambda: run(url, "load", dump, "--crawl", "moved")
                )
                bench_add.empty(url, TABLES)
                copied = bench_add.costs(
                    backend.pid, lambda: bench_add.copy_in(url, Path(files), TABLES)
                )
            ratios.append(copied.seconds / loaded.seconds)
            print(
                f"round {number}: dump {count / dumped.seconds:,.0f} items/s, load "
                f"{count / loaded.seconds:,.0f}, COPY {count / copied.seconds:,.0f}: "
                f"{ratios[-1]:.2f} of its rate; CPU of an item, client + server: load "
                f"{loaded.of_item(count)}, COPY {copied.of_item(count)}; at most "
                f"{memory[0] / 1e6:.0f} and {memory[1] / 1e6:.0f} MB; "
                f"{dump.stat().st_size / count:.0f} bytes an item",
                flush=True,
            )
    print(f"{count:,} items: {statistics.median(ratios):.2f} of the rate of COPY (aim: {AIM})")


def _fill(url: str, count: int) -> None:
    engine = engines.sync_engine(url)
    with engine.begin() as connection:
        migrate.ensure(connection, auto=True)
    fill(engine, count, slots=100, wide=0, failing=0)
    engine.dispose()


def _run(url: str, *arguments: str) -> int:
    """Run a command, and return the most bytes of memory that it had."""
    command = [sys.executable, "-m", "scrapy", "itemgraph", *arguments]
    most = 0
    with tempfile.TemporaryDirectory() as directory:
        process = psutil.Popen(
            [*command, "-s", f"ITEMGRAPH_DATABASE_URL={url}"],
            cwd=directory,
            stdout=subprocess.DEVNULL,
        )
        while True:
            try:
                most = max(most, process.memory_info().rss)
                process.wait(0.2)
            except (psutil.TimeoutExpired, subprocess.TimeoutExpired):
                continue
            except psutil.NoSuchProcess:
                pass
            break
    assert process.wait() == 0, f"{arguments} ended with {process.returncode}"
    return most


if __name__ == "__main__":
    main()
