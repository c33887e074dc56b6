"""Whether a worker's memory grows with the pages it has fetched, beside plain Scrapy's.

One process fetches a great many made-up pages (`made_pages.py`). Its resident memory is noted at
10,000 pages and then now and again, after a full collection, with the number of objects that the
collector knows. Plain Scrapy keeps a fingerprint of each page; ours is to need no more after a
million pages than 1.1 times what it needs after ten thousand.

Run it by `make bench-parts`, or alone: `--pages 1000000 --only task` takes more than half an hour.
`--trace` says which lines have allocated what was added since 10,000 pages, and is slow.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import made_pages
from end_to_end import backends
from support import servers

PAGES = 100_000
FIRST = 10_000
AIM = 1.1  # times what it was at the first mark

MEMORY = '''
"""Notes the process's memory each time that so many pages have been fetched."""

import gc
import json
import os
import re
import tracemalloc
from collections import Counter
from pathlib import Path

from scrapy import signals

FIRST = 10_000
STEPS = (1, 2, 3, 5, 7)


class Memory:
    def __init__(self, crawler):
        self.crawler = crawler
        self.count = 0
        self.seen = []
        self.marks = iter(sorted(FIRST * step * 10**power for power in range(4) for step in STEPS))
        self.next = next(self.marks)
        self.traces = "TRACE" in os.environ
        self.before = None
        crawler.signals.connect(self.opened, signal=signals.engine_started)
        crawler.signals.connect(self.fetched, signal=signals.response_received)
        crawler.signals.connect(self.stopped, signal=signals.engine_stopped)

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    def opened(self):
        if self.traces:
            tracemalloc.start(12)

    def fetched(self):
        self.count += 1
        if self.count == self.next:
            self.note()
            self.next = next(self.marks)

    def note(self):
        gc.collect()
        kilobytes = re.search(r"VmRSS:\\s*(\\d+)", Path("/proc/self/status").read_text())[1]
        objects = Counter(type(one).__name__ for one in gc.get_objects())
        one = {"pages": self.count, "rss": int(kilobytes) * 1024, "objects": objects.total()}
        if self.traces:
            now = tracemalloc.take_snapshot()
            if self.before is None:
                self.before, self.kinds = now, objects
            else:
                one["kinds"] = (objects - self.kinds).most_common(12)
                one["lines"] = [
                    (stat.size_diff, stat.count_diff, stat.traceback.format()[-8:])
                    for stat in now.compare_to(self.before, "traceback")[:12]
                ]
        self.seen.append(one)

    def stopped(self):
        if not self.seen or self.seen[-1]["pages"] != self.count:
            self.note()
        stats = self.crawler.stats.get_stats()
        with open("seen.json", "w") as file:
            json.dump({"pages": stats["downloader/response_count"], "marks": self.seen}, file)
'''


def main() -> None:
    """Crawl with each once, and print memory by pages."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pages", type=int, default=PAGES)
    parser.add_argument("--only", default="plain,drop-in,task", help="some of plain,drop-in,task")
    parser.add_argument("--trace", action="store_true", help="say what lines have allocated")
    parser.add_argument("--hosts", type=int, default=1, help="that the pages are spread over")
    parser.add_argument("--starts", action="store_true", help="all pages are start requests")
    options = parser.parse_args()
    only = options.only.split(",")
    environment = {"HOSTS": str(options.hosts)}
    if options.starts:
        environment["STARTS"] = str(options.pages)
    if options.trace:
        environment["TRACE"] = "1"
    with servers.open_directory() as directory, servers.open_directory() as project:
        made_pages.write_project(project, memory=MEMORY)
        with backends.postgres(directory) as backend:
            for contestant in made_pages.CONTESTANTS:
                if contestant.partition(" ")[0] in only:
                    seen = made_pages.crawl(
                        project,
                        contestant,
                        backend.url,
                        options.pages,
                        "memory.Memory",
                        **environment,
                    )
                    report(contestant, seen)


def report(contestant: str, seen: dict[str, Any]) -> None:
    """Print what was seen of a crawl."""
    print(f"\n{contestant}\n{'pages':>12}{'MB':>9}{'ratio':>8}{'objects':>12}")
    first = seen["marks"][0]
    for mark in seen["marks"]:
        ratio = mark["rss"] / first["rss"]
        print(f"{mark['pages']:>12,}{mark['rss'] / 1e6:>9.1f}{ratio:>8.3f}{mark['objects']:>12,}")
    last = seen["marks"][-1]
    more = (last["rss"] - first["rss"]) / max(1, last["pages"] - first["pages"])
    print(f"{more:.0f} bytes a page from {first['pages']:,} on (aim: {AIM} times at a million)")
    for kind, count in last.get("kinds", ()):
        print(f"  {count:>+9,} {kind}")
    for size, count, lines in last.get("lines", ()):
        print(f"  {size:>+12,} bytes, {count:>+9,} blocks", *lines, sep="\n      ")


if __name__ == "__main__":
    main()
