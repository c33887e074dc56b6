"""The worklist without downloads: cycles a second of claim and commit, beside job queues.

A cycle is one execution: work is claimed, and a data update, a metadata update and a new item that
has work itself are committed with its end. Workers are processes of their own on one embedded
PostgreSQL, which is started once; each run has a new database with the same items. Rounds are
interleaved. `ours-25` and `ours-100` differ in how much a transaction claims and commits at most.
What the others do, and what they do not give, stands in `worklist/on_pgqueuer.py` and
`worklist/on_procrastinate.py`. Second, the worklist query of the first notes beside a claim of as
much at a million items: see `worklist/notes.py`.

Run it by `make bench-parts`, or a part of it:

    python bench/bench_worklist.py --only ours,pgqueuer --workers 1,2 --rounds 1
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import statistics
import sys
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parent / "worklist"))

import notes
import ours
import runs
from conftest import new_database
from support import servers

from scrapy_itemgraph.postgres.embedded_server import EmbeddedServer

BASELINE = "pgqueuer"


def arguments() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    names = ", ".join(one.name for one in runs.CONTESTANTS)
    parser.add_argument("--only", default="all,notes", help=f"of: {names}, notes")
    parser.add_argument("--workers", default="1,2,8", help="how many work side by side")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0, help="that a run is measured")
    parser.add_argument("--warm", type=float, default=1.0, help="seconds before that")
    parser.add_argument("--items", type=int, default=50_000, help="with work, at first")
    parser.add_argument("--notes-items", type=int, default=1_000_000, help="half of them fresh")
    parser.add_argument("--limit", type=int, default=25, help="items of the notes' query")
    return parser.parse_args()


def main() -> None:
    """Measure, and write tables in Markdown."""
    given = arguments()
    contestants = list(runs.chosen(given.only))
    with ExitStack() as held:
        directory = held.enter_context(servers.open_directory())
        server = EmbeddedServer.start(directory)  # its own settings: a commit is on the disk
        held.callback(server.close)
        watched = runs.Server(server.url)
        held.callback(watched.close)
        print(
            f"PostgreSQL {watched.version}, Python {platform.python_version()}, "
            f"{os.cpu_count()} cores, {platform.machine()}\n",
            flush=True,
        )
        if contestants:
            print(cycles(given, contestants, server.url, watched), flush=True)
        if "notes" in given.only.split(","):
            print(beside_notes(given, server.url), flush=True)


def cycles(
    given: argparse.Namespace,
    contestants: list[runs.Contestant],
    url: str,
    server: runs.Server,
) -> str:
    """Measure cycles in interleaved rounds; return their table."""
    numbers = [int(number) for number in given.workers.split(",")]
    measured: dict[tuple[int, str], list[runs.Run]] = {
        (workers, one.name): [] for workers in numbers for one in contestants
    }
    with ExitStack() as held:
        templates = {}
        for one in contestants:
            templates[one.name] = held.enter_context(new_database(url))
            one.fill(templates[one.name], given.items)
        for number in range(1, given.rounds + 1):
            for workers in numbers:
                for one in contestants:
                    with new_database(url, templates[one.name]) as database:
                        run = runs.run(
                            one,
                            server,
                            database,
                            workers=workers,
                            warm=given.warm,
                            seconds=given.seconds,
                        )
                    measured[workers, one.name].append(run)
                    print(
                        f"round {number}: {one.name}, {workers} workers: {run.rate:,.0f}/s",
                        file=sys.stderr,
                        flush=True,
                    )
    return table(measured)


def table(measured: dict[tuple[int, str], list[runs.Run]]) -> str:
    """Return a table of medians; rates with the lowest and the highest one."""
    lines = [
        f"| workers | | cycles/s | to {BASELINE} | clients' CPU, ms | PostgreSQL's CPU, ms | WAL |",
        "|---:|---|---:|---:|---:|---:|---:|",
    ]
    for (workers, name), found in measured.items():
        rates = [run.rate for run in found]
        beside = measured.get((workers, BASELINE))
        ratio = ""
        if beside:
            base = statistics.median(run.rate for run in beside)
            ratio = f"{statistics.median(rates) / base:.2f}"
        client, backend, wal = (
            statistics.median(getattr(run, what) for run in found)
            for what in ("client_cpu", "server_cpu", "wal")
        )
        lines.append(
            f"| {workers} | {name} | {statistics.median(rates):,.0f} "
            f"({min(rates):,.0f} to {max(rates):,.0f}) | {ratio} | {client:.2f} | {backend:.2f} | "
            f"{wal:,.0f} B |"
        )
    lines.append(f"\nMedians of {len(found)} rounds (lowest to highest); CPU and WAL a cycle.\n")
    return "\n".join(lines)


def beside_notes(given: argparse.Namespace, url: str) -> str:
    """Measure the notes' query and our claims in turns; return their table."""
    count, done, limit = given.notes_items, given.notes_items // 2, given.limit
    whole, limited, marks, claims = [], [], [], []
    with new_database(url) as theirs, new_database(url) as mine:
        notes.fill(runs.where(theirs), count, done)
        ours.fill(mine, count=count, done=done)
        for number in range(1, given.rounds + 1):
            whole.append(notes.query(runs.where(theirs), count - done, is_limited=False))
            limited.append(notes.query(runs.where(theirs), limit, is_limited=True))
            marks += notes.marks(runs.where(theirs), limit)
            claims += asyncio.run(notes.claims(mine, limit))
            print(f"round {number}: the notes' query {whole[-1]:.2f} s", file=sys.stderr)
    claim = statistics.median(claims)
    rows = {
        "the notes' query, as written": whole,
        f"the same with LIMIT {limit}": limited,
        f"one INSERT that notes {limit} as in progress, committed": marks,
        f"our claim of {limit}, committed": claims,
    }
    lines = [f"| {count:,} items, half of them fresh | ms | to our claim |", "|---|---:|---:|"]
    for name, seconds in rows.items():
        median = statistics.median(seconds)
        spread = f"{min(seconds) * 1000:,.1f} to {max(seconds) * 1000:,.1f}"
        lines.append(f"| {name} | {median * 1000:,.1f} ({spread}) | {median / claim:,.1f} |")
    lines.append(f"\nMedians of {given.rounds} rounds (lowest to highest).\n")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
