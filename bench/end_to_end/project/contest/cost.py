"""What a crawl cost, from Scrapy's `engine_started` to its `engine_stopped`."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import time
from contextlib import suppress
from pathlib import Path

from scrapy import signals

TICKS = os.sysconf("SC_CLK_TCK")
# By its path: a contestant without the add-on is not to have all of it in memory.
GC_TUNING = Path(__file__).parents[4] / "scrapy_itemgraph" / "tools" / "gc_tuning.py"


def spent_by(pid):
    """Return the seconds of CPU that a server has used, with those of its ended and live children.

    Without a server it is 0.
    """
    if not pid:
        return 0.0
    children = Path(f"/proc/{pid}/task/{pid}/children")
    while True:
        # One that ends meanwhile would be missed, or counted twice.
        before = _ticks(pid), children.read_text()
        ticks = sum(before[0])
        with suppress(OSError):
            ticks += sum(sum(_ticks(child)[:2]) for child in before[1].split())
            if (_ticks(pid)[2:], children.read_text()) == (before[0][2:], before[1]):
                return ticks / TICKS


def busy():
    """Return the seconds of CPU that all of the machine has used, by anybody."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    user, nice, system, _idle, _waiting, *rest = map(int, fields)
    return (user + nice + system + sum(rest)) / TICKS


def _ticks(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return [int(field) for field in fields[11:15]]  # user, system; both of children that ended


def peak():
    """Return the most memory that this process ever had, in bytes."""
    kilobytes = re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())[1]
    return int(kilobytes) * 1024


class Cost:
    """Writes seconds, CPU, memory and counts to the file of the setting COST_FILE, as JSON.

    COST_SERVER is the process of the server whose CPU is counted beside, COST_SITE that of the
    website's. COST_TUNES_GC tells whether Python's collector is tuned, as the add-on does it.
    """

    def __init__(self, crawler):
        self.crawler = crawler
        self.server = crawler.settings.getint("COST_SERVER")
        self.site = crawler.settings.getint("COST_SITE")
        if crawler.settings.getbool("COST_TUNES_GC", True):
            crawler.signals.connect(self.opened, signal=signals.spider_opened)
        crawler.signals.connect(self.started, signal=signals.engine_started)
        crawler.signals.connect(self.stopped, signal=signals.engine_stopped)

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    def opened(self):
        spec = importlib.util.spec_from_file_location("gc_tuning", GC_TUNING)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.tune()

    def started(self):
        self.began = self.now()

    def now(self):
        return {
            "at": time.monotonic(),
            "cpu": time.process_time(),
            "server": spent_by(self.server),
            "site": spent_by(self.site),
            "machine": busy(),
        }

    def stopped(self):
        stats = self.crawler.stats.get_stats()
        seen = {
            "began": self.began,
            "ended": self.now(),
            "peak": peak(),
            "pages": stats.get("downloader/response_status_count/200", 0),
            "missing": stats.get("downloader/response_status_count/404", 0),
            "scraped": stats.get("item_scraped_count", 0),
            "errors": stats.get("log_count/ERROR", 0),
        }
        Path(self.crawler.settings["COST_FILE"]).write_text(json.dumps(seen))
