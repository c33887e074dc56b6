"""Who crawls, and with which settings."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

ADDON = json.dumps({"scrapy_itemgraph.Addon": 500})


@dataclass(frozen=True)
class Contestant:
    """A spider with a frontier; `server` is where the frontier is, if not in the process."""

    name: str
    title: str
    spider: str = "plain"
    settings: dict[str, str] = field(default_factory=dict)
    server: str = ""  # "postgresql" or "redis"
    processes: int = 1
    needs_jobdir: bool = False


def _ours(name: str, title: str, spider: str, processes: int = 1) -> Contestant:
    settings = {"ADDONS": ADDON, "SPIDER_MODULES": f"contest.{spider}_spiders"}
    return Contestant(name, title, spider, settings, "postgresql", processes)


CONTESTANTS = {
    one.name: one
    for one in (
        Contestant("memory", "Scrapy, memory"),
        Contestant("files", "Scrapy, JOBDIR, files", needs_jobdir=True),
        Contestant(
            "sqlite",
            "Scrapy, JOBDIR, SQLite",
            settings={
                "SCHEDULER_DISK_QUEUE": "scrapy.squeues.PickleLifoSQLiteQueue",
                "SCHEDULER_START_DISK_QUEUE": "scrapy.squeues.PickleFifoSQLiteQueue",
            },
            needs_jobdir=True,
        ),
        Contestant(
            "redis",
            "scrapy-redis",
            settings={
                "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
                "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
            },
            server="redis",
        ),
        Contestant("fixed", "Scrapy, a fixed list", spider="fixed"),
        _ours("dropin", "ours, drop-in", "plain"),
        _ours("task", "ours, task", "task"),
        _ours("task2", "ours, task, 2 processes", "task", processes=2),
    )
}
BASE, CEILING, REDIS = "memory", "fixed", "redis"

VARIANTS = {
    "": {"CONCURRENT_ITEMS": "16"},
    "items100": {"CONCURRENT_ITEMS": "100"},
    "gc": {"CONCURRENT_ITEMS": "16", "COST_TUNES_GC": "False"},
}
VARIANT_TITLES = {
    "": "",
    "items100": ", with `CONCURRENT_ITEMS = 100`",
    "gc": ", with Python's collector as it comes",
}
