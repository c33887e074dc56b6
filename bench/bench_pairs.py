"""The CPU that a page costs in two checkouts of the package, in interleaved pairs, beside A/A.

A checkout is named by its folder, as `git worktree add` makes one. Each crawl is a drop-in spider's
or a task's on a database of its own. CPU is that of the crawl's process and of the server's
processes, from `spider_opened` to `spider_closed`. The first folder is run twice in each round: the
difference between its two runs is noise.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from conftest import new_database
from end_to_end import backends
from support import servers, sites

if TYPE_CHECKING:
    from collections.abc import Sequence

# What measures the CPU of a server, as a module of its own that a crawl imports.
CONTEST = Path(__file__).parent / "end_to_end" / "project"

CRAWL = """
import json, os, sys, time
import scrapy
from contest import cost
from scrapy import signals
from scrapy.crawler import CrawlerProcess
from scrapy_itemgraph import CreateItem, task

SITE, PAGES, KIND, URL = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
SERVER = int(sys.argv[5])


class Drop(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/1"]

    @classmethod
    def from_crawler(cls, crawler, *args, **kwargs):
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.began, signals.spider_opened)
        crawler.signals.connect(spider.ended, signals.spider_closed)
        return spider

    def began(self):
        self.spent = self.cpu()

    def ended(self):
        pages = self.crawler.stats.get_value("response_received_count")
        spent = [now - before for now, before in zip(self.cpu(), self.spent)]
        print(json.dumps({"crawl": spent[0], "server": spent[1], "pages": pages}))

    def cpu(self):
        return time.process_time(), cost.spent_by(SERVER)

    def links(self, response):
        number = int(response.url.rpartition("/")[2])
        return [n for n in [*range(number * 5, number * 5 + 5), *range(2, 12)] if n <= PAGES]

    def parse(self, response):
        for n in self.links(response):
            yield scrapy.Request(f"{SITE}/page/{n}")
        yield {"url": response.url}


class Tasks(Drop):
    start_urls = []

    def seeds(self):
        yield CreateItem("P1", tags=["page"], data={"url": SITE + "/page/1"})

    @task(tags=["page"])
    def page(self, response, item):
        for n in self.links(response):
            yield CreateItem(f"P{n}", tags=["page"], data={"url": f"{SITE}/page/{n}"})
        yield {"url": response.url}


process = CrawlerProcess({
    "ADDONS": {"scrapy_itemgraph.Addon": 500}, "ITEMGRAPH_DATABASE_URL": URL,
    "ITEMGRAPH_AUTO_MIGRATE": True, "LOG_LEVEL": "ERROR", "TELNETCONSOLE_ENABLED": False,
    "CONCURRENT_REQUESTS": 16, "CONCURRENT_REQUESTS_PER_DOMAIN": 16, "DOWNLOAD_DELAY": 0,
    "ROBOTSTXT_OBEY": False, "ITEMGRAPH_DEFAULT_TTL": "never",
    **json.loads(os.environ.get("CRAWL_SETTINGS", "{}")),
})
process.crawl(Tasks if KIND == "task" else Drop)
process.start()
"""


class Spent(NamedTuple):
    """Microseconds of CPU a page, of the crawl's process and of the server's processes."""

    crawl: float
    server: float

    @property
    def total(self) -> float:
        """Both."""
        return self.crawl + self.server


def crawl(folder: Path, server: backends.Postgres, site: str, pages: int, kind: str) -> Spent:
    """Crawl once with the code of a folder."""
    with new_database(server.url) as url, tempfile.TemporaryDirectory() as here:
        (Path(here) / "crawl.py").write_text(CRAWL)
        given = [site, str(pages), kind, url, str(server.pid)]
        run = subprocess.run(
            [sys.executable, "-W", "ignore", "crawl.py", *given],
            cwd=here,
            env={**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{CONTEST}"},
            capture_output=True,
            text=True,
            check=True,
        )
    found = json.loads(run.stdout.splitlines()[-1])
    if found["pages"] != pages:
        raise RuntimeError(f"{found['pages']} pages of {pages}: {run.stderr}")
    return Spent(found["crawl"] / pages * 1e6, found["server"] / pages * 1e6)


def main() -> None:
    """Run the rounds, and print each and their medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--pages", type=int, default=2500)
    parser.add_argument("--kinds", default="drop-in,task")
    given = parser.parse_args()
    with (
        servers.open_directory() as directory,
        backends.postgres(directory) as server,
        sites.site() as site,
    ):
        for kind in given.kinds.split(","):
            rounds = []
            for _ in range(given.pairs):
                before, after, again = (
                    crawl(folder.resolve(), server, site.url, given.pages, kind)
                    for folder in (given.before, given.after, given.before)
                )
                rounds.append((before, after, again))
                said = "  ".join(f"{one.crawl:.0f}+{one.server:.0f}" for one in rounds[-1])
                print(f"{kind}: {said} µs a page, crawl + server", flush=True)
            for part in ("crawl", "server", "total"):
                tell(f"{kind}, {part}", [tuple(getattr(one, part) for one in r) for r in rounds])


def tell(what: str, rounds: Sequence[tuple[float, ...]]) -> None:
    """Print the medians and quartiles of the ratios of (before, after, before again)."""
    ratios = {
        "A/A": [again / before for before, _, again in rounds],
        "after/before": [after / ((before + again) / 2) for before, after, again in rounds],
    }
    for name, found in ratios.items():
        low, middle, high = statistics.quantiles(found, n=4)
        print(f"{what}: {name} {middle:.3f} (quartiles {low:.3f} to {high:.3f})", flush=True)


if __name__ == "__main__":
    main()
