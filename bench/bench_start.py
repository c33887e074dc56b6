"""What a start costs beside plain Scrapy: seconds of CPU until the first request leaves.

The same spider fetches one local page: in plain Scrapy, with our line, and as a task spider. They
take turns, each in a new process. CPU is that of the crawl's process, all its threads, as it tells
when its first request has reached the downloader, and once more at its end; PostgreSQL's is not in
it. The server runs all the while and the graph is migrated, but for the embedded contestant, which
starts a server on an existing cluster and stops it again.

`--items 10000000` starts both of ours also on a graph that has so many items, half of them of each
spider and half of these done; filling it takes minutes and gigabytes.

Run it by `make bench-parts`. The seconds are this machine's; the differences are what matters.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from made_pages import migrated
from support import servers, sites

from scrapy_itemgraph.postgres import engine as engines

ROUNDS = 11
AIM = 0.6  # seconds of CPU more than plain Scrapy
AIM_OF_ITEMS = 0.3  # seconds more on many items than on none
ROOT = Path(__file__).parents[1]
PATIENCE = 600  # seconds for a crawl

PLAIN = """
import os

import scrapy


class Page(scrapy.Spider):
    name = "plain"
    start_urls = [f"{os.environ['SITE']}/page/{os.getpid()}"]  # a new one in each start

    def parse(self, response):
        return {"title": response.css("title::text").get()}
"""

TASK = """
import os

import scrapy
from scrapy_itemgraph import CreateItem, task


class Page(scrapy.Spider):
    name = "task"

    def seeds(self):
        url = f"{os.environ['SITE']}/page/{os.getpid()}"
        yield CreateItem(id=url, tags=["page"], data={"url": url})

    @task(tags=["page"])
    def page(self, response, item):
        return {"title": response.css("title::text").get()}
"""

SETTINGS = """
LOG_LEVEL = "INFO"
EXTENSIONS = {"spent.Spent": 0}
CLOSESPIDER_PAGECOUNT = 1
CONCURRENT_REQUESTS = 1
"""

SPENT = '''
"""Notes the CPU and the time that the process has taken at its first request and at its end."""

import json
import os
import time

from scrapy import signals


def spent():
    with open("/proc/self/stat") as file:
        began = int(file.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    return {"cpu": time.process_time(), "wall": time.clock_gettime(time.CLOCK_BOOTTIME) - began}


class Spent:
    def __init__(self, crawler):
        self.seen = {}
        crawler.signals.connect(self.left, signal=signals.request_reached_downloader)
        crawler.signals.connect(self.ended, signal=signals.engine_stopped)

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    def left(self):
        self.seen.setdefault("first", spent())

    def ended(self):
        with open("spent.json", "w") as file:
            json.dump(self.seen | {"end": spent()}, file)
'''

# Copies of the crawl's last item and what belongs to it: an even one is done, an odd one waits.
FILL = (
    """
    CREATE TEMPORARY TABLE sample ON COMMIT DROP AS
    SELECT i.*, r.task_id, r.task_version, k.id AS kind_id, q.id AS queue_id
    FROM crawls c JOIN items i ON i.crawl_id = c.id JOIN results r ON r.item_id = i.id
    JOIN kinds k ON k.task_id = r.task_id
    JOIN queues q ON q.crawl_id = c.id AND q.slot_id = i.slot_id
    WHERE c.name = %(crawl)s ORDER BY i.id DESC LIMIT 1
    """,
    """
    CREATE TEMPORARY TABLE copies ON COMMIT DROP AS
    SELECT nextval(pg_get_serial_sequence('items', 'id')) AS id, n
    FROM generate_series(1, %(count)s) n
    """,
    """
    INSERT INTO items (id, crawl_id, slot_id, name, data) OVERRIDING SYSTEM VALUE
    SELECT c.id, s.crawl_id, s.slot_id, 'copy-' || c.n, s.data FROM copies c, sample s
    """,
    """
    INSERT INTO aliases (crawl_id, key, name, item_id)
    SELECT s.crawl_id,
        encode(substring(sha256(convert_to('copy-' || c.n, 'UTF8')) FOR 16), 'hex')::uuid AS key,
        'copy-' || c.n, c.id FROM copies c, sample s ORDER BY key
    """,
    """
    INSERT INTO tags (item_id, tag_name, crawl_id)
    SELECT c.id, g.tag_name, g.crawl_id FROM copies c, sample s JOIN tags g ON g.item_id = s.id
    """,
    """
    INSERT INTO results (item_id, task_id, task_version, is_successful, completed_at)
    SELECT c.id, s.task_id, s.task_version, true, now() FROM copies c, sample s WHERE c.n %% 2 = 0
    """,
    """
    INSERT INTO work (item_id, task_id, crawl_id, queue_id, kind_id, is_stale, nice)
    SELECT c.id, s.task_id, s.crawl_id, s.queue_id, s.kind_id, false, 0
    FROM copies c, sample s WHERE c.n %% 2 = 1
    """,
    "UPDATE queues SET is_live = true WHERE id = (SELECT queue_id FROM sample)",
)
BIG_TABLES = ("items", "aliases", "tags", "results", "work")


Spent = dict[str, dict[str, float]]  # by moment: CPU and wall


@dataclass(frozen=True)
class Contestant:
    """A way to start: a spider, and the URL of its graph; "" for the embedded server's."""

    title: str
    spider: str
    url: str | None = None  # None: plain Scrapy


def write_project(directory: Path) -> None:
    """Write the project, one module for each spider: plain Scrapy is to import nothing of ours."""
    (directory / "scrapy.cfg").write_text("[settings]\ndefault = settings\n")
    files = {"settings": SETTINGS, "spent": SPENT, "plain": PLAIN, "task": TASK}
    for name, text in files.items():
        (directory / f"{name}.py").write_text(text)


def start(project: Path, contestant: Contestant, site: str) -> Spent:
    """Crawl once; return CPU and seconds at the first request and at the end."""
    spent = project / "spent.json"
    spent.unlink(missing_ok=True)
    given = {"SPIDER_MODULES": contestant.spider}
    if contestant.url is not None:
        given |= {"ADDONS": '{"scrapy_itemgraph.Addon": 500}', "ITEMGRAPH_AUTO_MIGRATE": "1"}
    if contestant.url:
        given["ITEMGRAPH_DATABASE_URL"] = contestant.url
    options = [part for name, value in given.items() for part in ("-s", f"{name}={value}")]
    # Where Python writes no bytecode, everything that is imported would be compiled each time.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    run = subprocess.run(
        [sys.executable, "-m", "scrapy", "crawl", contestant.spider, *options],
        check=False,
        capture_output=True,
        text=True,
        cwd=project,
        env=environment | {"SITE": site, "PYTHONPATH": str(ROOT)},
        timeout=PATIENCE,
    )
    seen: Spent = json.loads(spent.read_text()) if spent.exists() else {}
    if run.returncode or "first" not in seen:
        raise SystemExit(f"{contestant.title} failed:\n{run.stderr}")
    return seen


def fill(url: str, count: int) -> None:
    """Give the crawls of both spiders, which have run once, half as many items each."""
    engine = engines.sync_engine(url)
    began = time.perf_counter()
    with engine.begin() as connection:
        connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
        connection.exec_driver_sql("SET LOCAL maintenance_work_mem = '512MB'")
        connection.exec_driver_sql("SET LOCAL work_mem = '256MB'")
        indexes = connection.exec_driver_sql(
            "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' "
            "AND indexname LIKE '%%_idx' AND tablename = ANY (%s)",
            (list(BIG_TABLES),),
        ).all()
        for name, _ in indexes:
            connection.exec_driver_sql(f"DROP INDEX {name}")
        for crawl in ("plain", "task"):
            for statement in FILL:
                given = {"crawl": crawl, "count": count // 2}
                connection.exec_driver_sql(statement, given)
            connection.exec_driver_sql("DROP TABLE sample, copies")
        for _, definition in indexes:
            connection.exec_driver_sql(definition)
    admin = engine.execution_options(isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.exec_driver_sql("VACUUM ANALYZE")
        connection.exec_driver_sql("CHECKPOINT")
    engine.dispose()
    print(f"{count:,} items filled in {time.perf_counter() - began:.0f} s", flush=True)


def main() -> None:
    """Take turns, and print medians and their differences."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--items", type=int, default=0, help="start on so many items, too")
    options = parser.parse_args()
    compileall.compile_dir(ROOT / "scrapy_itemgraph", quiet=1)
    with ExitStack() as stack:
        server = stack.enter_context(servers.server())
        site = stack.enter_context(sites.site())
        project = stack.enter_context(servers.open_directory())
        write_project(project)
        contestants = [
            Contestant("plain Scrapy", "plain"),
            Contestant("drop-in", "plain", stack.enter_context(migrated(server))),
            Contestant("task spider", "task", stack.enter_context(migrated(server))),
            Contestant("task spider, embedded server", "task", ""),
        ]
        if options.items:
            large = stack.enter_context(migrated(server))
            on_many = [
                Contestant(f"drop-in, {options.items:,} items", "plain", large),
                Contestant(f"task spider, {options.items:,} items", "task", large),
            ]
            for one in on_many:
                start(project, one, site.url)
            fill(large, options.items)
            contestants += on_many
        for one in contestants:  # bytecode is written, crawls are registered
            start(project, one, site.url)
        runs: dict[str, list[Spent]] = {}
        for number in range(options.rounds):
            print(f"round {number + 1} of {options.rounds}", flush=True)
            for one in contestants if number % 2 else contestants[::-1]:
                runs.setdefault(one.title, []).append(start(project, one, site.url))
    report(contestants, runs)


def report(contestants: list[Contestant], runs: dict[str, list[Spent]]) -> None:
    """Print medians of each, and medians of the differences within a round."""
    plain = runs[contestants[0].title]
    print(f"\n{'seconds':<36}{'to the first request':^26}{'to the end':^26}")
    columns = f"{'CPU':>8}{'more':>8}{'wall':>8}  "
    print(f"{'':<36}{columns}{columns}")
    for one in contestants:
        line = f"{one.title:<36}"
        for moment in ("first", "end"):
            cpu = statistics.median(run[moment]["cpu"] for run in runs[one.title])
            wall = statistics.median(run[moment]["wall"] for run in runs[one.title])
            more = _more(runs[one.title], plain, moment)
            line += f"{cpu:>8.2f}{more:>8.2f}{wall:>8.2f}  "
        print(line)
    for title in ("drop-in", "task spider"):
        more = _more(runs[title], plain, "first")
        print(f"{title}: {more:.2f} s of CPU more than plain Scrapy (aim: {AIM} at most)")
        for many, seen in runs.items():
            if many.startswith(f"{title}, ") and many.endswith("items"):
                more = _more(seen, runs[title], "first")
                print(f"{many}: {more:.2f} s more than on none (aim: {AIM_OF_ITEMS} at most)")


def _more(these: list[Spent], those: list[Spent], moment: str) -> float:
    """Return the median of the differences in CPU, round by round."""
    differences = [
        one[moment]["cpu"] - other[moment]["cpu"] for one, other in zip(these, those, strict=True)
    ]
    return statistics.median(differences)


if __name__ == "__main__":
    main()
