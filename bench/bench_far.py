"""Crawls whose database is far away: pages a second at 0, 2, 20 and 60 ms of round trip.

A proxy between the worker and PostgreSQL delays each byte by half of the round trip each way; it
does not limit how much passes. The deep site of `make bench`, 32 requests at once, a drop-in
spider's and a task's. Several checkouts of the package (folders) take turns in each round.

Run it by `make bench-far`, or a part of it:

    python bench/bench_far.py --round-trips 0,20 --rounds 1 --checkouts ../before,.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import sqlalchemy as sa
from conftest import new_database
from end_to_end import backends, contestants
from support import servers

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
ROOT = HERE.parent
PROJECT = HERE / "end_to_end" / "project"


@contextmanager
def service(*given: object) -> Iterator[int]:
    """Run a process of `far_services.py`; yield its port."""
    command = [sys.executable, HERE / "far_services.py", *map(str, given)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()


def rate(folder: Path, kind: str, far: sa.URL, site: int, pages: int) -> float:
    """Crawl once with the code of a folder; return pages a second.

    Raises:
        RuntimeError: when another number of pages was fetched.

    """
    contestant = contestants.CONTESTANTS[kind]
    with tempfile.TemporaryDirectory() as directory:
        seeds, cost = Path(directory) / "seeds", Path(directory) / "cost.json"
        seeds.write_text(f"http://127.0.0.1:{site}/deep/p0.html")
        given = {
            **contestant.settings,
            "ITEMGRAPH_DATABASE_URL": far.render_as_string(hide_password=False),
            "ITEMGRAPH_AUTO_MIGRATE": "True",  # checkouts differ in their schemas
            "COST_FILE": str(cost),
            "LOG_LEVEL": "WARNING",
        }
        command = [sys.executable, "-m", "scrapy", "crawl", contestant.spider]
        command += ["-a", f"seeds_file={seeds}"]
        for name, value in given.items():
            command += ["-s", f"{name}={value}"]
        environment = {**os.environ, "PYTHONPATH": str(folder.resolve())}
        run = subprocess.run(
            command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=True
        )
        seen = json.loads(cost.read_text())
    if seen["pages"] != pages:
        raise RuntimeError(f"{seen['pages']} pages of {pages}: {run.stderr}")
    return pages / (seen["ended"]["at"] - seen["began"]["at"])


def main() -> None:
    """Run the rounds, and print each run and a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--round-trips", default="0,2,20,60", help="milliseconds")
    parser.add_argument("--kinds", default="dropin,task")
    parser.add_argument(
        "--checkouts", default=str(ROOT), help="folders, as git worktree makes them"
    )
    parser.add_argument("--pages", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    trips = [float(number) for number in given.round_trips.split(",")]
    kinds = given.kinds.split(",")
    folders = [Path(folder) for folder in given.checkouts.split(",")]
    rates: dict[tuple[Path, str, float], list[float]] = {}
    with ExitStack() as held:
        directory = held.enter_context(servers.open_directory())
        server = held.enter_context(backends.postgres(directory))
        site = held.enter_context(service("site", given.pages))
        url = sa.make_url(server.url)
        where = url.query.get("host") or url.host, url.query.get("port") or url.port or 5432
        proxies = {
            trip: held.enter_context(service("proxy", trip / 1000, *where)) for trip in trips
        }
        for _ in range(given.rounds):
            for trip in trips:
                for kind in kinds:
                    for folder in folders:
                        with new_database(server.url) as database:
                            near = sa.make_url(database)
                            far = near.set(host="127.0.0.1", port=proxies[trip], query={})
                            found = rate(folder, kind, far, site, given.pages)
                        rates.setdefault((folder, kind, trip), []).append(found)
                        print(f"{folder.name}, {kind}, {trip:g} ms: {found:.0f}/s", flush=True)
    for folder in folders:
        print(f"\n{folder.resolve().name}, pages a second, medians of {given.rounds}\n")
        print(f"| round trip | {' | '.join(kinds)} |")
        print("|---" * (len(kinds) + 1) + "|")
        for trip in trips:
            cells = []
            for kind in kinds:
                middle = statistics.median(rates[folder, kind, trip])
                nearest = statistics.median(rates[folder, kind, trips[0]])
                cells.append(f"{middle:.0f} ({middle / nearest:.2f})")
            print(f"| {trip:g} ms | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
