"""What a page with a great many links costs: seconds, memory and stalls, beside plain Scrapy.

Both crawl the same local page with the same spider, in turns, until all its links are in the
frontier: in memory, or committed. Seconds and CPU are counted from Scrapy's `engine_started` to its
`engine_stopped`, and ours has an empty graph that is migrated: what a process costs before it
crawls is not the page's. Memory is the most that the process ever had. CPU is that of the crawl's
process; PostgreSQL has its own beside it.

A stall is how long the event loop did not turn, in seconds of the main thread's own CPU, so that a
busy machine makes none, and without Python's collector. The callback's own work, such as to parse
the page in one piece, is among the stalls of both. Run it by `make bench`, or alone, with the
numbers of links and of rounds as its arguments.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from conftest import new_database
from support import servers, sites
from support.projects import Project

from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres import migrate

LINKS = 100_000
ROUNDS = 3
LIMIT = 1.3  # times what plain Scrapy takes
STALL = 0.05  # seconds

SPIDER = """
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/links"]

    def parse(self, response):
        for href in response.css("a::attr(href)").getall():
            yield response.follow(href, self.page)

    def page(self, response):
        pass
"""

SETTINGS = """
LOG_LEVEL = "INFO"
CONCURRENT_REQUESTS = 1
EXTENSIONS = {"proj.watch.Watch": 0}
"""

WATCH = '''
"""Measures stalls of the loop, and closes the spider when all links are in the frontier."""

import asyncio
import gc
import json
import sys
import threading
import time
import traceback
from collections import Counter

from scrapy import signals

PAUSE = 0.002
STALL = 0.05  # seconds of CPU


class Watch:
    def __init__(self, crawler):
        self.crawler = crawler
        self.left = crawler.settings.getint("LINKS")
        self.stalls = []
        self.stacks = Counter()
        self.main = threading.get_ident()
        self.turned = 0.0
        self.collecting = self.collected = 0.0
        gc.callbacks.append(self.collect)
        crawler.signals.connect(self.opened, signal=signals.engine_started)
        crawler.signals.connect(self.scheduled, signal=signals.request_scheduled)
        crawler.signals.connect(self.stopped, signal=signals.engine_stopped)

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    def opened(self):
        self.began = time.monotonic(), time.process_time()
        self.task = asyncio.ensure_future(self.turn())
        threading.Thread(target=self.sample, daemon=True).start()

    def collect(self, phase, _):
        if threading.get_ident() == self.main:
            if phase == "start":
                self.collecting = time.thread_time()
            else:
                self.collected += time.thread_time() - self.collecting

    async def turn(self):
        while True:
            began, collected = time.thread_time(), self.collected
            self.turned = began
            await asyncio.sleep(PAUSE)
            spent = time.thread_time() - began - (self.collected - collected)
            if spent > 0.02:
                self.stalls.append(spent)

    def sample(self):
        clock = time.pthread_getcpuclockid(self.main)
        while True:
            time.sleep(0.01)
            if self.turned and time.clock_gettime(clock) - self.turned > STALL:
                frame = sys._current_frames().get(self.main)
                names = [
                    f"{one.filename.rpartition('/')[2]}:{one.name}:{one.lineno}"
                    for one in traceback.extract_stack(frame)
                ]
                self.stacks[" > ".join(names[-7:])] += 1

    def scheduled(self, request, spider):
        self.left -= request.url.startswith(self.crawler.spider.start_urls[0] + "/")
        if not self.left:
            closing = self.crawler.engine.close_spider_async(reason="seen")
            self.closing = asyncio.ensure_future(closing)

    def stopped(self):
        self.task.cancel()
        began, used = self.began
        seen = {
            "seconds": time.monotonic() - began,
            "cpu": time.process_time() - used,
            "stalls": self.stalls,
            "stacks": self.stacks.most_common(40),
        }
        with open("watch.json", "w") as file:
            json.dump(seen, file)
'''


class Links(sites.Site):
    """Serves a page of links, and pages that have none."""

    count = LINKS

    def answer(self, target: str) -> tuple[int, dict[str, str], bytes]:
        """Answer a request."""
        if target != "/links":
            time.sleep(1)  # few are fetched meanwhile: that is not what is measured
            return super().answer(target)
        links = "".join(
            f'<li><a href="/links/{n}?page={n}">Link {n}</a>' for n in range(self.count)
        )
        return 200, {"Content-Type": "text/html"}, f"<html><ul>{links}</ul></html>".encode()


@dataclass
class Cost:
    """What one run took: seconds of wall clock and CPU, bytes at most, stalls in seconds."""

    seconds: float
    cpu: float
    peak: int
    stalls: list[float]
    stacks: list


def run(project: Project, site: Links, *settings: str) -> Cost:
    """Crawl once in a process of its own, and measure it."""
    given = [one for setting in (*settings, f"LINKS={site.count}") for one in ("-s", setting)]
    process = project.start("crawl", "s", *given)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, project.log()
    seen = json.loads((project.directory / "watch.json").read_text())
    return Cost(
        seconds=seen["seconds"],
        cpu=seen["cpu"],
        peak=used.ru_maxrss * 1024,
        stalls=sorted(seen["stalls"], reverse=True),
        stacks=seen["stacks"],
    )


def main() -> None:
    """Take turns, print what each run took, and the medians with their ratios."""
    Links.count = int(sys.argv[1]) if len(sys.argv) > 1 else LINKS
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else ROUNDS
    costs: dict[str, list[Cost]] = {"plain Scrapy": [], "with our line": []}
    with ExitStack() as held:
        url = held.enter_context(servers.server())
        site = held.enter_context(sites.site(Links))
        path = held.enter_context(tempfile.TemporaryDirectory())
        template = held.enter_context(new_database(url))
        engine = engines.sync_engine(template)
        with engine.begin() as connection:
            migrate.ensure(connection, auto=True)
        engine.dispose()
        for number in range(1, rounds + 1):
            for name, taken in costs.items():
                with new_database(url, template) as database:
                    directory = Path(path) / f"{number}-{len(name)}"
                    directory.mkdir()
                    project = Project(directory, database, site.url)
                    project.write(SPIDER, SETTINGS, watch=WATCH)
                    ours = [] if name != "plain Scrapy" else ["ADDONS={}", "CONCURRENT_ITEMS=16"]
                    cost = run(project, site, *ours)
                    taken.append(cost)
                    if not ours:
                        count = "SELECT count(*) FROM items WHERE name LIKE 'REQ:%'"
                        assert project.rows(count) == [(site.count,)]
                stalls = ", ".join(f"{stall * 1000:.0f}" for stall in cost.stalls[:5]) or "none"
                print(
                    f"round {number}: {name:13} {cost.seconds:.1f} s, {cost.cpu:.1f} s of CPU, "
                    f"{cost.peak / 1e6:.0f} MB; longest stalls, ms of CPU: {stalls}",
                    flush=True,
                )
                if os.environ.get("STACKS") and not ours:
                    for stack, count in cost.stacks[:25]:
                        print(f"  {count} {stack}")
    for what, unit, shown in (("seconds", "s", 1), ("cpu", "s of CPU", 1), ("peak", "MB", 1e6)):
        plain, ours = (
            statistics.median(getattr(one, what) for one in taken) / shown
            for taken in costs.values()
        )
        print(
            f"median of {rounds}: {plain:.1f} {unit} plain, {ours:.1f} with our line: "
            f"{ours / plain:.2f} times (at most {LIMIT})"
        )


if __name__ == "__main__":
    main()
