"""Workers whose downloads are only waited for: how many of them one server bears.

1 to 64 workers, of 16 downloads at a time and about 0.3 seconds each, on one embedded PostgreSQL,
directly and through PgBouncer in transaction mode; they are simulated, several in a process, by
`growing/waiting.py`. For each number: pages and commits a second, the CPU that PostgreSQL and the
workers take, and connections to the server. Beside it, in the same run, is what the database takes
from workers that wait for nothing, as `bench_worklist.py` measures it.

Run it by `make bench-growing`, or a part of it:

    python bench/bench_growing.py --workers 1,8,64 --ways direct --rounds 1
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack, closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parent / "worklist"))

import ours
import runs
from conftest import new_database
from support import servers
from support.bouncers import bouncer

from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres.embedded_server import EmbeddedServer

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

WAITING = Path(__file__).parent / "growing" / "waiting.py"
POOL = 8  # of PgBouncer, where it is asked for: four for each core that measures here
FLAT_OUT = runs.Contestant("flat out", "ours.py", 100, {})


@dataclass(frozen=True)
class Measured:
    """What a run brought, a second: pages, commits; seconds of CPU; connections at most."""

    pages: float
    commits: float
    server_cpu: float
    client_cpu: float
    connections: int


def arguments() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", default="1,2,4,8,16,32,64", help="how many there are")
    parser.add_argument("--ways", default="direct,pooled", help="of: direct, pooled")
    parser.add_argument("--flat-out", default="2,8", help="workers that wait for nothing")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0, help="that a run is measured")
    parser.add_argument("--warm", type=float, default=4.0, help="seconds before that")
    parser.add_argument("--latency", type=float, default=0.3, help="seconds of a download")
    parser.add_argument("--concurrency", type=int, default=16, help="downloads of a worker")
    parser.add_argument("--hosts", type=int, default=100)
    parser.add_argument("--items", type=int, default=50_000, help="with work, at first")
    parser.add_argument("--processes", type=int, default=2, help="that the workers are in")
    return parser.parse_args()


def main() -> None:
    """Measure, and write a table in Markdown."""
    given = arguments()
    numbers = [int(number) for number in given.workers.split(",")]
    ways = given.ways.split(",")
    flat_out = [int(number) for number in filter(None, given.flat_out.split(","))]
    waiting: dict[tuple[str, int], list[Measured]] = {}
    alone: dict[int, list[runs.Run]] = {}
    with ExitStack() as held:
        directory = held.enter_context(servers.open_directory())
        server = EmbeddedServer.start(directory)  # its own settings: a commit is on the disk
        held.callback(server.close)
        watched = held.enter_context(closing(runs.Server(server.url)))
        print(
            f"PostgreSQL {watched.version}, Python {platform.python_version()}, "
            f"{os.cpu_count()} cores, {platform.machine()}\n",
            flush=True,
        )
        template = held.enter_context(new_database(server.url))
        ours.fill(template, count=given.items, hosts=given.hosts)
        for number in range(1, given.rounds + 1):
            for workers in flat_out:
                with new_database(server.url, template) as database:
                    run = runs.run(
                        FLAT_OUT,
                        watched,
                        database,
                        workers=workers,
                        warm=given.warm / 2,
                        seconds=given.seconds,
                    )
                alone.setdefault(workers, []).append(run)
                print(f"round {number}: {workers} flat out: {run.rate:,.0f}/s", file=sys.stderr)
            for workers in numbers:
                for way in ways:
                    with new_database(server.url, template) as database:
                        measured = measure(given, watched, database, workers, way)
                    waiting.setdefault((way, workers), []).append(measured)
                    print(
                        f"round {number}: {workers} {way}: {measured.pages:,.0f}/s",
                        file=sys.stderr,
                        flush=True,
                    )
    print(table(given, waiting, alone), flush=True)


def measure(
    given: argparse.Namespace, server: runs.Server, database: str, workers: int, way: str
) -> Measured:
    """Let so many workers wait for pages of a filled database, and measure them.

    Raises:
        RuntimeError: when what they say they committed is not what is in the database.

    """
    engine = engines.sync_engine(database)
    path: AbstractContextManager[str] = (
        nullcontext(database) if way == "direct" else bouncer(engine, "transaction", pool_size=POOL)
    )
    with path as url:
        engine.dispose()  # so that it is not counted
        done, cpu, passed, connections = _run(given, server, database, url, workers)
    total = sum(each["total"] for each in done)
    if ours.written(database) != total:
        raise RuntimeError(f"{total} committed, but {ours.written(database)} in the database")
    engine.dispose()
    return Measured(
        pages=sum(each["committed"] / each["seconds"] for each in done),
        commits=sum(each["commits"] / each["seconds"] for each in done),
        server_cpu=cpu / passed,
        client_cpu=sum(each["cpu"] / each["seconds"] for each in done),
        connections=connections,
    )


def _run(
    given: argparse.Namespace, server: runs.Server, database: str, url: str, workers: int
) -> tuple[list[dict], float, float, int]:
    """Return what the processes say, the server's CPU and in how many seconds, connections."""
    shares = [
        workers // given.processes + (number < workers % given.processes)
        for number in range(given.processes)
    ]
    asked = {name: getattr(given, name) for name in ("warm", "seconds", "latency", "concurrency")}
    processes = [
        subprocess.Popen(
            [
                sys.executable,
                WAITING,
                json.dumps({**asked, "url": url, "workers": share}),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for share in shares
        if share
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise RuntimeError("a worker did not get ready")
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        time.sleep(given.warm)
        before, began = server.cpu(), time.perf_counter()
        time.sleep(given.seconds)
        cpu, passed = server.cpu() - before, time.perf_counter() - began
        connections = server.connections(database)
        done = [json.loads(process.communicate(timeout=runs.PATIENCE)[0]) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return done, cpu, passed, connections


def table(
    given: argparse.Namespace,
    waiting: dict[tuple[str, int], list[Measured]],
    alone: dict[int, list[runs.Run]],
) -> str:
    """Return a table of medians; rates with the lowest and the highest one."""
    best = max(
        (statistics.median(run.rate for run in found) for found in alone.values()), default=0.0
    )
    head = (
        "| workers | | pages/s | of what they can wait for | of flat out | commits/s "
        "| PostgreSQL's CPU, cores | a page, ms | workers' CPU, cores | connections |"
    )
    lines = [head, "|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|"]
    for workers, found in alone.items():
        rates = [run.rate for run in found]
        rate = statistics.median(rates)
        server, client = (
            statistics.median(getattr(run, what) for run in found)
            for what in ("server_cpu", "client_cpu")
        )
        lines.append(
            f"| {workers} | flat out | {_spread(rates)} | | {rate / best:.2f} | "
            f"| {rate * server / 1000:.2f} | {server:.2f} | {rate * client / 1000:.2f} | |"
        )
    for way in dict.fromkeys(way for way, _ in waiting):
        for workers in sorted(number for one, number in waiting if one == way):
            found = waiting[way, workers]
            median = {
                name: statistics.median(getattr(one, name) for one in found)
                for name in ("pages", "commits", "server_cpu", "client_cpu", "connections")
            }
            offered = workers * given.concurrency / given.latency
            share = f"{median['pages'] / best:.2f}" if best else ""
            lines.append(
                f"| {workers} | {way} | {_spread([one.pages for one in found])} "
                f"| {median['pages'] / offered:.2f} | {share} | {median['commits']:,.0f} "
                f"| {median['server_cpu']:.2f} "
                f"| {median['server_cpu'] / median['pages'] * 1000:.2f} "
                f"| {median['client_cpu']:.2f} | {median['connections']:.0f} |"
            )
    lines.append(
        f"\nMedians of {given.rounds} rounds (lowest to highest). Downloads of "
        f"{given.latency:g} s, {given.concurrency} at a time in each worker, of {given.hosts} "
        f"hosts; PgBouncer's pool of {POOL}.\n"
    )
    return "\n".join(lines)


def _spread(rates: list[float]) -> str:
    return f"{statistics.median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"


if __name__ == "__main__":
    main()
