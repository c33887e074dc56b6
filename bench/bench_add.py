"""How fast `scrapy itemgraph add` is beside COPY of the very same rows into the same tables.

Ids of pages are added from standard input, with a tag that calls for a task, so that each becomes
an item with a name, a tag and outstanding work: four tables with nine indexes. Then these rows are
copied out, the tables are emptied, and COPY brings them back. Both write to an embedded server with
the settings of a crawl, `fsync` on. The command is counted from its start to its end, and once more
without what it takes for one item.

Run it by `make bench-parts`, or alone, with the number of items and of rounds as its arguments.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import psycopg
from conftest import new_database
from end_to_end import backends
from end_to_end.project.contest import cost
from support import servers
from support.races import Crawl

from scrapy_itemgraph import task
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres import migrate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ITEMS = 200_000
ROUNDS = 3
AIM = 0.4  # of the rate of COPY
BLOCK = 1 << 20  # bytes
TABLES = ("items", "aliases", "tags", "work")
PACKAGE = Path(__file__).parents[1]


class Pages:
    """A task that the items' tag calls for."""

    @task(tags=["page"])
    def parse(self, response, item): ...


@dataclass(frozen=True)
class Cost:
    """What something took: seconds, and seconds of CPU of its process and of the server."""

    seconds: float
    cpu: float
    server_cpu: float

    def __sub__(self, other: Cost) -> Cost:
        return Cost(
            self.seconds - other.seconds, self.cpu - other.cpu, self.server_cpu - other.server_cpu
        )

    def of_item(self, count: int) -> str:
        """Return microseconds of CPU for an item, of the process and of the server."""
        return f"{self.cpu / count * 1e6:.0f} + {self.server_cpu / count * 1e6:.0f} µs"


def main() -> None:
    """Measure in turns, and print rates and their ratio."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else ITEMS
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else ROUNDS
    ratios, without_start = [], []
    with (
        servers.open_directory() as directory,
        backends.postgres(directory) as backend,
        tempfile.TemporaryDirectory() as files,
    ):
        ids = Path(files) / "ids"
        with ids.open("w") as lines:
            for number in range(count):
                lines.write(f"https://shop.example/category/{number % 997}/page-{number}.html\n")
        first = Path(files) / "first"
        first.write_text("https://shop.example/first\n")
        for number in range(1, rounds + 1):
            with new_database(backend.url) as url:
                _prepare(url)
                start = costs(backend.pid, lambda: _add(url, first))
                added = costs(backend.pid, lambda: _add(url, ids))
                copy_out(url, Path(files), TABLES)
                copied = costs(backend.pid, lambda: copy_in(url, Path(files), TABLES))
            ratios.append(copied.seconds / added.seconds)
            more = added - start
            without_start.append(copied.seconds / more.seconds)
            print(
                f"round {number}: add {count / added.seconds:,.0f} items/s, COPY "
                f"{count / copied.seconds:,.0f}: {ratios[-1]:.2f} of its rate; without the "
                f"{start.seconds:.1f} s that the command takes for one item "
                f"{without_start[-1]:.2f}; CPU of an item, client + server: "
                f"{more.of_item(count)}, COPY {copied.of_item(count)}",
                flush=True,
            )
    print(
        f"{count:,} items: {statistics.median(ratios):.2f} of the rate of COPY, without the start "
        f"{statistics.median(without_start):.2f} (aim: {AIM} at least)"
    )


def costs(server: int, work: Callable[[], None]) -> Cost:
    """Do some work and return what it took; a child's CPU counts when it has ended."""
    began, cpu, server_cpu = time.perf_counter(), _cpu(), cost.spent_by(server)
    work()
    return Cost(time.perf_counter() - began, _cpu() - cpu, cost.spent_by(server) - server_cpu)


def _cpu() -> float:
    return sum(os.times()[:4])


def _prepare(url: str) -> None:
    """Make the schema, and a crawl whose task is registered."""
    engine = engines.sync_engine(url)
    with engine.begin() as connection:
        migrate.ensure(connection, auto=True)
    Crawl(engine, Pages)
    engine.dispose()


def _add(url: str, ids: Path) -> None:
    """Run the command in a directory of its own."""
    command = [sys.executable, "-m", "scrapy", "itemgraph", "add", "-", "--tag", "page"]
    with tempfile.TemporaryDirectory() as directory, ids.open("rb") as given:
        subprocess.run(
            [*command, "-s", f"ITEMGRAPH_DATABASE_URL={url}"],
            check=True,
            cwd=directory,
            env=os.environ | {"PYTHONPATH": str(PACKAGE)},
            stdin=given,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


def copy_out(url: str, directory: Path, tables: Sequence[str]) -> None:
    """Write all rows to files, a table each, and empty the tables."""
    with _connected(url) as connection:
        for name in tables:
            with (
                (directory / name).open("wb") as file,
                connection.cursor().copy(f"COPY {_columns(connection, name)} TO STDOUT") as copy,
            ):
                for block in copy:
                    file.write(block)
    empty(url, tables)


def empty(url: str, tables: Sequence[str]) -> None:
    """Empty tables."""
    with _connected(url) as connection:
        connection.execute(f"TRUNCATE {', '.join(tables)}")
        connection.execute("CHECKPOINT")


def copy_in(url: str, directory: Path, tables: Sequence[str]) -> None:
    """Bring the rows back, a table after the other."""
    with _connected(url) as connection:
        for name in tables:
            with (
                (directory / name).open("rb") as file,
                connection.cursor().copy(f"COPY {_columns(connection, name)} FROM STDIN") as copy,
            ):
                while block := file.read(BLOCK):
                    copy.write(block)


def _connected(url: str) -> psycopg.Connection:
    return psycopg.connect(url.replace("+psycopg", ""), autocommit=True)


def _columns(connection: psycopg.Connection, table: str) -> str:
    """Return a table with those of its columns that are written."""
    rows = connection.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass "
        "AND attnum > 0 AND attgenerated = ''",
        [table],
    )
    return f"{table} ({', '.join(name for (name,) in rows)})"


if __name__ == "__main__":
    main()
