"""One spider crawled twice, by Scrapy's own scheduler and by ours, and what differs between them.

The spiders are those of the project in `projects/bookshop`, which does not know of this one.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from support import sites
from support.compatibility_site import Shop
from support.projects import IS_REACTORLESS, Project

if TYPE_CHECKING:
    from collections.abc import Sequence

PROJECT = Path(__file__).parents[1] / "projects" / "bookshop"
ARGUMENTS = ("-a", "category=poetry", "-a", "pages=2")
STOCK = ("-s", "ADDONS={}")

# Stats that say what was crawled, and not how fast, how large, or by which scheduler.
STATS = re.compile(
    r"reason|finish_reason|item_\w+_count(/.*)?|response_received_count|dupefilter/filtered"
    r"|downloader/(request_count|request_method_count/.*|response_count|response_status_count/.*"
    r"|exception_.*)|spider_exceptions/.*|retry/.*|request_depth_(max|count/.*)|httperror/.*"
    r"|offsite/.*|robotstxt/.*|urllength/.*|httpcache/.*|file_.*|log_count/ERROR"
)
# What depends on the clock, on the run, or on how a scheduler keeps its requests.
VOLATILE_META = {
    "cache_timestamp",
    "download_latency",
    "download_slot",
    "download_timeout",
    "proxy",
}
OUR_META = "_itemgraph"


@dataclass(frozen=True)
class Crawl:
    """What a spider did, with the site's port and the order taken out."""

    facts: Counter[str]
    log: str


def ours(url: str) -> tuple[str, ...]:
    """Return the arguments that switch our scheduler on, on a database."""
    addons = json.dumps({"scrapy_itemgraph.Addon": 500})
    return ("-s", f"ADDONS={addons}", "-s", f"ITEMGRAPH_DATABASE_URL={url}")


def crawl_in_ways(
    directory: Path, spiders: Sequence[str], *ways: tuple[str, ...]
) -> list[dict[str, Crawl]]:
    """Crawl with each spider in several ways, at the same time, each on a site of its own."""
    with ExitStack() as stack:
        runs = [
            Run(directory / str(number), stack.enter_context(sites.site(Shop)), spiders, way)
            for number, way in enumerate(ways)
        ]
        return [run.finish() for run in runs]


class Run:
    """Crawls with some spiders, one after another, in one process."""

    def __init__(
        self, directory: Path, site: Shop, spiders: Sequence[str], way: tuple[str, ...]
    ) -> None:
        directory.mkdir()
        for path in PROJECT.iterdir():
            (directory / path.name).symlink_to(path)
        self._directory = directory
        self._site = site
        self._spiders = spiders
        self._project = Project(directory, url="", site_url=site.url)
        mode = ("-s", "TWISTED_REACTOR_ENABLED=False") if IS_REACTORLESS else ()
        self._process = self._project.start("crawl_each", *spiders, *ARGUMENTS, *way, *mode)

    def finish(self) -> dict[str, Crawl]:
        """Wait for the end, and gather what each spider did."""
        run = self._project.finish(self._process)
        chapters = re.split(r"INFO: Now (\w+)\n", run.log)
        logs = dict(zip(chapters[1::2], chapters[2::2], strict=True))
        return {name: Crawl(self._facts(name), logs.get(name, run.log)) for name in self._spiders}

    def _facts(self, spider: str) -> Counter[str]:
        directory = self._directory / spider
        if not (directory / "stats.json").exists():
            return Counter([f"not crawled to its end in {directory}"])
        stats = json.loads((directory / "stats.json").read_text())
        facts = [{"kind": "stat", name: stats[name]} for name in stats if STATS.fullmatch(name)]
        facts += map(json.loads, (directory / "notes.jsonl").read_text().splitlines())
        facts += self._site.asked[spider]
        for path in [*directory.glob("feed.*"), *directory.glob("store/**/*")]:
            if path.is_file():
                lines = path.read_text().splitlines()
                facts += [{"kind": "line", "name": path.suffix, "line": line} for line in lines]
        return Counter(map(self._shown, facts))

    def _shown(self, fact: dict) -> str:
        if "meta" in fact:
            fact["meta"] = {
                name: value
                for name, value in fact["meta"].items()
                if name not in VOLATILE_META and not name.startswith(OUR_META)
            }
        port = str(self._site.server.server_port)
        return json.dumps(fact, sort_keys=True, ensure_ascii=False).replace(port, "PORT")


def differences(stock: Crawl, own: Crawl) -> list[str]:
    """Return what only one of two crawls did, a line each."""
    lines = []
    for sign, surplus in (("-", stock.facts - own.facts), ("+", own.facts - stock.facts)):
        lines += [f"{sign} {count} x {fact}" for fact, count in surplus.items()]
    return sorted(lines, key=lambda line: (line.partition("{")[2], line))
