"""How long pages and commands take at ten thousand and at ten million pages, side by side.

Of a plain spider's crawl, half of whose pages are done. Each page of the cockpit, each list of the
API and each command that only reads is asked for in turns on both, once to warm up, and then the
median counts. What took more than the aim longer is asked for once more in the end, for another
process may have been in the way, and the last figures count. It exits with 1 where some still do.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import plain_crawl
import sqlalchemy as sa
from conftest import new_database
from support import servers, web_servers

from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres import migrate, urls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SMALL = 10_000
AIM = 300  # milliseconds that one may take longer
URL = "http://h7.example/page/107/of-usual-length.html"  # a page whose callback has failed
DONE = "http://h1.example/page/1/of-usual-length.html"  # one that was fetched ten times
LACKING = "http://h7.example/page/107/of-usual-length"
TEXT = "h7.example/page/9"
NO_TEXT = "no such text"
PAGES = {
    "crawls": "",
    "queue": "queue",
    "jobs": "jobs",
    "runners": "runners",
    "overview": "crawls/pages/overview",
    "runs": "crawls/pages/runs",
    "worklist": "crawls/pages/worklist",
    **{
        f"worklist: {state}": f"crawls/pages/worklist?state={state}"
        for state in ("ready", "delayed", "claimed", "held", "gone")
    },
    "worklist: held in a slot": "crawls/pages/worklist?state=held&slot=h7.example",
    "worklist: held in a slot (none)": "crawls/pages/worklist?state=held&slot=h8.example",
    "worklist: later in a slot": "crawls/pages/worklist?state=delayed&slot=h7.example",
    "worklist: a slot": "crawls/pages/worklist?slot=h7.example",
    "worklist: a callback": "crawls/pages/worklist?task=parse",
    "explain": f"crawls/pages/explain?id={URL}",
    "failures": "crawls/pages/failures",
    "failures: by count": "crawls/pages/failures?sort=count",
    "failures: no such text": "crawls/pages/failures?text=nothing",
    "failures: one by one": "crawls/pages/failures/list",
    "failures: no such text, listed": "crawls/pages/failures/list?text=nothing",
    "failures: of an hour": "crawls/pages/failures/list?since=1h",
    "failure": "crawls/pages/failures/3",
    "item": f"crawls/pages/item?id={URL}",
    "item with many attempts": f"crawls/pages/item?id={DONE}",
    "items": "crawls/pages/items",
    "items: of a tag": "crawls/pages/items?tag=callback:parse",
    "items: of a callback": "crawls/pages/items?task=parse",
    **{
        f"items: {state}": f"crawls/pages/items?state={state.replace(' ', '+')}"
        for state in ("never run", "fresh", "stale", "held", "gone")
    },
    "items: changed in an hour": "crawls/pages/items?since=1h",
    "done last": "crawls/pages/done",
    "done last, of a callback": "crawls/pages/done?task=parse",
    "tasks": "crawls/pages/tasks",
    "slots": "crawls/pages/slots",
    "workers": "crawls/pages/workers",
    "search: a page": f"crawls/pages/search?q={URL}",
    "search: no such name": "crawls/pages/search?q=zzz",
    "search: beginnings": "crawls/pages/search?q=http&by=prefix",
    "search: a path": "crawls/pages/search?q=$.nothing&by=path",
}
OF_CRAWL = (
    *("", "/overview", "/runs", "/workers", "/minutes", "/totals", "/tasks", "/journal"),
    *("/items", "/items?tag=callback:parse", "/items?state=fresh", "/items?state=held", "/done"),
    *(
        f"/items/URL{part}"
        for part in ("", "/metadata", "/operations", "/attempts", "/neighbours", "/blobs")
    ),
    *("/items/URL/explain", f"/search?q={TEXT}"),
    *("/failures", "/failures?text=nothing", "/failures/3", "/failure-groups"),
    *("/worklist", "/work", "/work?state=held", "/work?state=delayed&slot=h7.example"),
)
API = {
    f"GET {path or '/'}": "api/v1/crawls/pages" + path.replace("URL", quote(URL, safe=""))
    for path in OF_CRAWL
} | {"GET crawls": "api/v1/crawls", "GET slots": "api/v1/slots", "GET metrics": "metrics"}
API |= {f"GET {name}": f"api/v1/{name}" for name in ("queue", "jobs", "runners")}
COMMANDS = {
    "status": ["status"],
    "status -v": ["status", "-v"],
    "runs": ["runs"],
    "tasks": ["tasks"],
    "slots": ["slots"],
    "slots --crawl": ["slots", "--crawl", plain_crawl.NAME],
    "worklist": ["worklist"],
    "worklist --task": ["worklist", "--task", "parse"],
    "worklist --gone": ["worklist", "--gone"],
    "explain URL": ["explain", URL],
    "show URL": ["show", URL],
    "show URL (not there)": ["show", LACKING],
    "items": ["items"],
    "items --tag": ["items", "--tag", "callback:parse"],
    "items --state fresh": ["items", "--state", "fresh"],
    "items --state held": ["items", "--state", "held"],
    "items --since 1h": ["items", "--since", "1h"],
    "done": ["done"],
    "failures": ["failures"],
    "failures N": ["failures", "3"],
    "failures --groups": ["failures", "--groups"],
    "failures --group N": ["failures", "--group", "3"],
    "failures --since 1h": ["failures", "--since", "1h"],
    "failures --error (common)": ["failures", "--error", "price"],
    "failures --error (none)": ["failures", "--error", NO_TEXT],
    "handle --all --dry-run": ["handle", "--all", "--dry-run"],
    "handle --task --dry-run": ["handle", "--task", "parse_page", "--dry-run"],
    "handle --group --dry-run": ["handle", "--group", "3", "--dry-run"],
    "handle --error --dry-run": ["handle", "--error", "price", "--dry-run"],
    "handle --error (none) --dry-run": ["handle", "--error", NO_TEXT, "--dry-run"],
    "blobs URL": ["blobs", URL],
    "crawls list": ["crawls", "list"],
    "jobs list": ["jobs", "list"],
    "schedules list": ["schedules", "list"],
    "notices list": ["notices", "list"],
    "runners list": ["runners", "list"],
    "token list": ["token", "list"],
    "restart (says what would go)": ["restart", plain_crawl.NAME],
}


def main() -> None:
    """Fill both, ask for each, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=10_000_000)
    parser.add_argument("--crawls", type=int, default=1, help="that the pages are of")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="what has this in its name")
    parser.add_argument("--keep", metavar="NAME", help="use these databases, made when not there")
    given = parser.parse_args()
    if _over(given):
        sys.exit(1)


def _over(given: argparse.Namespace) -> list[str]:
    """Measure; return the names of what takes too much longer."""
    with servers.server() as server, ExitStack() as stack:
        databases = {
            count: stack.enter_context(_filled(server, count, given.crawls, given.keep))
            for count in (SMALL, given.items)
        }
        sites = {
            count: stack.enter_context(web_servers.serving(url)).url
            for count, url in databases.items()
        }
        asked: dict[str, Callable[[int], None]] = {}
        for name, path in (PAGES | API).items():
            asked[name] = lambda count, path=path: _get(sites[count] + path)
        for name, words in COMMANDS.items():
            asked[f"$ {name}"] = lambda count, words=words: _run(databases[count], words)
        print(f"{'ms':<36}{SMALL:>12,}{given.items:>14,}{'longer by':>12}{'times':>8}{'load':>7}")
        wanted = [name for name in asked if given.only in name]
        for _ in range(2):
            print(flush=True)
            wanted = [
                name
                for name in wanted
                if _compare(name, asked[name], list(databases), given.rounds) > AIM
            ]
        return wanted


def _compare(name: str, ask: Callable[[int], None], counts: list[int], rounds: int) -> float:
    """Ask on each graph in turns, print the medians; return how much longer, in milliseconds."""
    times: dict[int, list[float]] = {count: [] for count in counts}
    for count in counts:
        ask(count)
    for _ in range(rounds):
        for count in counts:
            started = time.perf_counter()
            ask(count)
            times[count].append(1000 * (time.perf_counter() - started))
    small, large = (statistics.median(found) for found in times.values())
    over = "" if large - small <= AIM else f"  more than {AIM}"
    ratio = large / small
    figures = f"{small:>12.0f}{large:>14.0f}{large - small:>12.0f}{ratio:>8.2f}"
    print(f"{name:<36}{figures}{os.getloadavg()[0]:>7.1f}{over}", flush=True)
    return large - small


def _get(url: str) -> None:
    with urllib.request.urlopen(url, timeout=120) as answer:
        answer.read()


def _run(database: str, words: list[str]) -> None:
    """Run a command, which may say that there is nothing of the kind."""
    done = subprocess.run(
        [*web_servers.SCRAPY, *words, "-s", f"ITEMGRAPH_DATABASE_URL={database}"],
        cwd=tempfile.gettempdir(),
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"COLUMNS": "200"},
    )
    if "Traceback" in done.stderr or done.returncode not in {0, 1}:
        raise SystemExit(f"{words} failed:\n{done.stderr[-3000:]}")


@contextmanager
def _filled(server: str, count: int, crawls: int, keep: str | None) -> Iterator[str]:
    """Yield a database with so many pages, of so many crawls."""
    if keep is None:
        with new_database(server) as url:
            _fill(url, count, crawls)
            yield url
        return
    kept = urls.normalise_url(server).set(database=f"{keep}_{crawls}_{count}")
    url = kept.render_as_string(hide_password=False)
    if _make(server, kept.database or ""):
        _fill(url, count, crawls)
    _migrate(url)
    yield url


def _make(server: str, name: str) -> bool:
    """Make a database; return whether it was not there."""
    admin = sa.create_engine(
        urls.normalise_url(server), isolation_level="AUTOCOMMIT", poolclass=sa.pool.NullPool
    )
    with admin.connect() as connection:
        there = sa.text("SELECT count(*) FROM pg_database WHERE datname = :name")
        if connection.execute(there, {"name": name}).scalar():
            return False
        connection.exec_driver_sql(f'CREATE DATABASE "{name}"')
    return True


def _migrate(url: str) -> None:
    """Bring a database up to date; one that was kept is of an older version perhaps."""
    engine = engines.sync_engine(url)
    with engine.begin() as connection:
        migrate.ensure(connection, auto=True)
    engine.dispose()


def _fill(url: str, count: int, crawls: int) -> None:
    _migrate(url)
    engine = engines.sync_engine(url)
    started = time.perf_counter()
    plain_crawl.fill(engine, count, of=crawls)
    with engine.connect() as connection:
        size = connection.exec_driver_sql("SELECT pg_database_size(current_database())").scalar()
    engine.dispose()
    took = time.perf_counter() - started
    print(f"{count:>12,} pages filled in {took:.0f} s, {(size or 0) >> 20:,} MiB", flush=True)


if __name__ == "__main__":
    main()
