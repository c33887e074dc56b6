"""How long the event loop stands still: the CPU of each of its steps, in a histogram.

A step is what asyncio calls at once: a part of a task between two awaits, or a callback. Its time
is the main thread's CPU, without what the spider's own code takes and without Python's collector,
which is shown apart. Steps are ours if the task's outermost coroutine, or the callback, is of
`scrapy_itemgraph`. All others are Scrapy's, Twisted's and asyncio's: what Scrapy calls of ours,
such as scheduler and middlewares, is in these, beside the same of plain Scrapy.

With `--links` the first two pages have a great many links, the same: what is new to one is known to
the other. The crawl ends some pages after them. All steps count then, without the spider's own
code, for Scrapy's steps call ours for each link.

The site is made up (`made_pages.py`), the server PostgreSQL with a crawl's settings. Run it by
`make bench-parts`, or alone, with the number of pages as its argument.
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

PAGES = 10_000
AFTER = 200  # pages that are crawled, those with the many links among them
LONGEST = 0.05  # seconds of CPU that a step may take on a page that is made to do harm
AIMS = {0.99: 0.005, 0.9999: 0.015}  # seconds of CPU of our own steps, by quantile
SHARES = (0.5, 0.99, 0.999, 0.9999)

STEPS = '''
"""Measures the steps of the event loop from `engine_started` to `engine_stopped`."""

import asyncio
import functools
import gc
import json
import sys
import threading
import time
import traceback
from collections import Counter

from made import Own
from scrapy import signals

LONG = 0.004  # seconds of CPU: of a step that takes more the stack is looked at
EVERY = 0.002


class Steps:
    def __init__(self, crawler):
        self.crawler = crawler
        self.seen = {"ours": [], "others": []}
        self.long = []
        self.stacks = Counter()
        self.here = Counter()  # those of the step under way
        self.collections = []
        self.collected = 0.0
        self.main = threading.get_ident()
        self.clock = time.pthread_getcpuclockid(self.main)
        self.began = None  # the step under way: the CPU of its thread when it began
        crawler.signals.connect(self.started, signal=signals.engine_started)
        crawler.signals.connect(self.stopped, signal=signals.engine_stopped)

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    def started(self):
        gc.callbacks.append(self.collect)
        self.run = run = asyncio.events.Handle._run
        thread_time, seen, long = time.thread_time, self.seen, self.long

        def timed(handle):
            kind, name = owner(handle._callback)
            collected, own, began = self.collected, Own.spent, thread_time()
            self.began = began
            try:
                return run(handle)
            finally:
                self.began = None
                spent = thread_time() - began
                spent -= self.collected - collected + Own.spent - own
                seen[kind].append(spent)
                if spent > LONG:
                    long.append((spent, kind, name, self.here.most_common(3)))
                if self.here:
                    self.here = Counter()

        asyncio.events.Handle._run = timed
        threading.Thread(target=self.sample, daemon=True).start()

    def collect(self, phase, info):
        if threading.get_ident() != self.main:
            return
        if phase == "start":
            self.collecting = time.thread_time()
        else:
            spent = time.thread_time() - self.collecting
            self.collected += spent
            self.collections.append((info["generation"], spent))

    def sample(self):
        while True:
            time.sleep(EVERY)
            began = self.began
            if began is not None and time.clock_gettime(self.clock) - began > LONG:
                stack = traceback.extract_stack(sys._current_frames()[self.main])
                ours = [
                    f"{one.name}:{one.lineno}"
                    for one in stack
                    if "/scrapy_itemgraph/" in one.filename
                ]
                last = f"{stack[-1].filename.rpartition('/')[2]}:{stack[-1].name}"
                where = " > ".join([*ours[-4:], last])
                self.stacks[where] += 1
                self.here[where] += 1

    def stopped(self):
        asyncio.events.Handle._run = self.run
        stats = self.crawler.stats.get_stats()
        with open("seen.json", "w") as file:
            json.dump(
                {
                    "pages": stats["downloader/response_count"],
                    "steps": self.seen,
                    "long": sorted(self.long, reverse=True)[:2000],
                    "stacks": self.stacks.most_common(15),
                    "collections": self.collections,
                },
                file,
            )


def owner(callback):
    """Return whose a callback is, and its name."""
    while isinstance(callback, functools.partial):
        callback = callback.func
    task = getattr(callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        made = task.get_coro()
        code = getattr(made, "cr_code", None) or getattr(made, "gi_code", None)
    else:
        code = getattr(callback, "__code__", None)
    if code is None:
        return "others", repr(type(callback))
    return of_code(code)


@functools.cache
def of_code(code):
    kind = "ours" if "/scrapy_itemgraph/" in code.co_filename else "others"
    return kind, f"{code.co_filename.rpartition('/')[2]}: {code.co_qualname}"
'''


def main() -> None:
    """Crawl with each once, and print the quantiles, the worst steps and the collections."""
    parser = argparse.ArgumentParser(description="How long the event loop stands still.")
    parser.add_argument("pages", type=int, nargs="?", default=PAGES)
    parser.add_argument("--links", type=int, default=0, help="of each of the first two pages")
    parser.add_argument("--hosts", type=int, default=1, help="that these links lead to")
    parser.add_argument("--only", choices=made_pages.CONTESTANTS, action="append")
    args = parser.parse_args()
    pages, environment = args.pages, {"HOSTS": str(args.hosts)}
    if args.links:
        pages = AFTER
        environment |= {"LINKS": str(args.links), "STARTS": "2", "STOP_AFTER": str(pages)}
    with servers.open_directory() as directory, servers.open_directory() as project:
        made_pages.write_project(project, steps=STEPS)
        with backends.postgres(directory) as backend:
            for contestant in args.only or made_pages.CONTESTANTS:
                seen = made_pages.crawl(
                    project, contestant, backend.url, pages, "steps.Steps", **environment
                )
                report(contestant, seen)
                if args.links:
                    report_longest(args.links, seen)


def report_longest(links: int, seen: dict[str, Any]) -> None:
    """Print the longest steps of a crawl, whosever, and what they did."""
    longest = max(max(steps, default=0) for steps in seen["steps"].values())
    print(f"pages of {links:,} links: the longest step took {1000 * longest:.1f} ms", end="")
    print(f" (aim: less than {1000 * LONGEST:g})")
    for spent, kind, name, stacks in seen["long"][:15]:
        print(f"  {1000 * spent:.1f} ms, {kind}: {name}")
        for stack, count in stacks:
            print(f"      {count:>3} samples: {stack}")


def report(contestant: str, seen: dict[str, Any]) -> None:
    """Print what was seen of a crawl, in milliseconds of CPU."""
    print(f"\n{contestant}, {seen['pages']:,} pages; ms of CPU")
    heads = "".join(f"{f'p{share:.4%}'.rstrip('0%').rstrip('.'):>9}" for share in SHARES)
    print(f"{'steps':<12}{'number':>10}{heads}{'max':>9}{'sum in s':>10}")
    for kind, steps in seen["steps"].items():
        if not steps:
            continue
        steps.sort()
        figures = "".join(f"{1000 * quantile(steps, share):>9.2f}" for share in SHARES)
        print(f"{kind:<12}{len(steps):>10,}{figures}{1000 * steps[-1]:>9.2f}{sum(steps):>10.2f}")
    for share, aim in AIMS.items():
        if seen["steps"]["ours"]:
            reached = quantile(seen["steps"]["ours"], share)
            print(f"ours, p{100 * share:g}: {1000 * reached:.2f} ms (aim: {1000 * aim:g} at most)")
    by_name: dict[str, list[float]] = {}
    for spent, kind, name, _ in seen["long"]:
        by_name.setdefault(f"{kind}: {name}", []).append(spent)
    for name, spent in sorted(by_name.items(), key=lambda one: -one[1][0])[:10]:
        print(f"  {len(spent):>5} over 4 ms, at most {1000 * spent[0]:.1f}: {name}")
    for stack, count in seen["stacks"]:
        print(f"  {count:>5} samples: {stack}")
    collections = seen["collections"]
    for generation in sorted({one for one, _ in collections}):
        spent_by = sorted(spent for one, spent in collections if one == generation)
        print(
            f"collections of generation {generation}: {len(spent_by)}, median "
            f"{1000 * quantile(spent_by, 0.5):.1f}, at most {1000 * spent_by[-1]:.1f}"
        )


def quantile(ordered: list[float], share: float) -> float:
    """Return the value that this share of the sorted values does not exceed."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


if __name__ == "__main__":
    main()
