"""How long the cockpit's pages take at ten thousand and at ten million items, side by side.

Of one item in ten a task has failed. Each page is asked for in turns on both graphs.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.filled import fill, settle
from conftest import new_database
from support import servers, web_servers

from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres import migrate

SMALL = 10_000
AIM = 300  # milliseconds that a page may take longer
PAGES = {
    "crawls": "",
    "overview": "crawls/books/overview",
    "worklist": "crawls/books/worklist",
    "held work": "crawls/books/worklist?state=held",
    "later work": "crawls/books/worklist?state=delayed",
    "work of a slot": "crawls/books/worklist?slot=q7.example",
    "failures": "crawls/books/failures",
    "item": "crawls/books/item?id=i7",
    "items": "crawls/books/items",
    "items of a tag": "crawls/books/items?tag=page",
    "held items": "crawls/books/items?state=held",
    "items in no such state": "crawls/books/items?state=stale&since=1h",
    "done last": "crawls/books/done",
    "tasks": "crawls/books/tasks",
    "slots": "crawls/books/slots",
    "workers": "crawls/books/workers",
    "search": "crawls/books/search?q=zzz",
}


def main() -> None:
    """Fill both, ask for each page, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with servers.server() as server, ExitStack() as stack:
        sites = {}
        for count in (SMALL, given.items):
            url = stack.enter_context(new_database(server))
            engine = engines.sync_engine(url)
            with engine.begin() as connection:
                migrate.ensure(connection, auto=True)
            started = time.perf_counter()
            fill(engine, count, failing=10)
            settle(engine)
            engine.dispose()
            print(f"{count:>12,} items filled in {time.perf_counter() - started:.0f} s", flush=True)
            sites[count] = stack.enter_context(web_servers.serving(url, "--crawl", "books")).url
        print(f"{'page, ms':<16}{SMALL:>12,}{given.items:>14,}{'longer by':>12}")
        for name, path in PAGES.items():
            times: dict[int, list[float]] = {count: [] for count in sites}
            for _ in range(given.rounds):
                for count, site in sites.items():
                    started = time.perf_counter()
                    with urllib.request.urlopen(site + path, timeout=60) as answer:
                        answer.read()
                    times[count].append(1000 * (time.perf_counter() - started))
            small, large = (statistics.median(found) for found in times.values())
            over = "" if large - small <= AIM else f"  more than {AIM}"
            print(f"{name:<16}{small:>12.0f}{large:>14.0f}{large - small:>12.0f}{over}", flush=True)


if __name__ == "__main__":
    main()
