"""Projects with another extension in them, crawled by stock Scrapy and by ours, and killed."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from dataclasses import dataclass
from textwrap import dedent
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from support import compatibility, sites
from support.projects import Project

if TYPE_CHECKING:
    from email.message import Message
    from pathlib import Path
    from typing import Any

ZYTE = {"X-Crawlera-Version": "1"}  # by which the middleware knows its proxy
OURS = {"scrapy_itemgraph.Addon": 500}
SETTINGS = """
ADDONS = {addons!r}
FEEDS = {{"items.jsonl": {{"format": "jsonlines", "overwrite": True}}}}
CONCURRENT_REQUESTS = 1
ITEMGRAPH_CRAWL = {crawl!r}
"""
HEAD = """
import os

import scrapy

SITE = os.environ["SITE"]
"""


class Books(sites.Site):
    """A list of four books at /, a page for each, and scripts that write one in the browser.

    It stands in for a proxy too: of an absolute URL it answers the path. What `gate` names is
    not answered before `may_answer`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[dict[str, str]] = []
        self.gate = ""
        self.banned = Counter[str]()  # how often each path is answered by a ban

    def respond(
        self, method: str, target: str, headers: Message, body: bytes
    ) -> tuple[int, dict[str, Any], bytes]:
        """Answer a page of the shop, or what every site answers."""
        path = urlsplit(target).path
        self.asked.append({"path": path, **{k.lower(): v for k, v in headers.items()}})
        status, given, page = self.answer(path)
        if path == self.gate:
            self.arrived.set()
            self.may_answer.wait(30)
        if self.banned[path] > 0:
            self.banned[path] -= 1
            return 503, {**ZYTE, "X-Crawlera-Error": "banned"}, b"banned"
        name, _, number = path.strip("/").partition("/")
        if not name:
            page = "".join(f'<a href="/book/{n}">{n}</a>' for n in range(1, 5)).encode()
        elif name == "book":
            page = f"<h1>Book {number}</h1><p>{number}.50</p>".encode()
        elif name == "half" and self.hits[path] == 1:
            page = b"<h1 class=half>Half a book</h1>"
        elif name == "half":
            page = b"<h1>Whole book</h1><p>1.50</p>"
        elif name == "script":
            page = (
                f"<h1>empty</h1><button onclick=\"document.querySelector('h1').textContent="
                f"'Book {number}, clicked'\">go</button><script>document.querySelector('h1')"
                f".textContent='Book {number}'</script>"
            ).encode()
        return status, {**ZYTE, **given, "Content-Type": "text/html; charset=utf-8"}, page


@dataclass
class Crawl:
    """What one process did: its items, the pages it asked for, and its stats and log."""

    items: list[str]
    asked: Counter[str]
    stats: dict[str, Any]
    log: str

    def common(self) -> dict[str, Any]:
        """Return the stats that stock Scrapy has as well, and that no clock changes."""
        return {k: v for k, v in self.stats.items() if compatibility.STATS.fullmatch(k)}


class Companion:
    """A project that uses a companion, on a site."""

    def __init__(
        self,
        directory: Path,
        url: str,
        site: Books,
        spider: str,
        settings: str = "",
        **modules: str,
    ) -> None:
        self._site = site
        self._directory = directory
        self._url = url
        self._spider = HEAD + dedent(spider)
        self._settings = dedent(settings)
        self._modules = modules

    def stock(self, *arguments: str, addons: dict[str, int] | None = None) -> Crawl:
        """Crawl by Scrapy's own scheduler."""
        return self.crawl(self.project("stock", addons or {}), *arguments)

    def ours(self, *arguments: str, addons: dict[str, int] | None = None) -> Crawl:
        """Crawl by our scheduler."""
        return self.crawl(self.project("ours", {**(addons or {}), **OURS}), *arguments)

    def project(self, name: str, addons: dict[str, int]) -> Project:
        """Write the project into a directory of its own, with a crawl of its own."""
        directory = self._directory / name
        directory.mkdir(exist_ok=True)
        project = Project(directory, self._url, self._site.url)
        settings = SETTINGS.format(addons=addons, crawl=name) + self._settings
        project.write("", settings, **self._modules)
        (directory / "proj" / "spiders" / "s.py").write_text(self._spider)
        return project

    def crawl(self, project: Project, *arguments: str) -> Crawl:
        """Crawl once."""
        self._site.hits.clear()
        (project.directory / "items.jsonl").unlink(missing_ok=True)
        run = project.crawl(*arguments)
        assert run.code == 0, run.log
        return Crawl(_items(project), Counter(self._site.hits), run.stats, run.log)

    def killed(
        self,
        gate: str,
        *arguments: str,
        addons: dict[str, int] | None = None,
        committed: int,
    ) -> tuple[Counter[str], Crawl]:
        """Kill -9 while `gate` is downloaded and so many requests are committed; crawl again.

        Return what the first process asked for, and the second crawl.
        """
        project = self.project("killed", {**(addons or {}), **OURS})
        self._site.gate = gate
        self._site.hits.clear()
        self._site.arrived.clear()
        self._site.may_answer.clear()
        process = project.start("crawl", "s", *arguments)
        try:
            _until(self._site.arrived.is_set, project)
            _until(lambda: _count(project) >= committed, project)
        finally:
            process.kill()
            process.communicate()
            self._site.gate = ""
            self._site.may_answer.set()
        asked = Counter(self._site.hits)
        return asked, self.crawl(project, *arguments)


def _items(project: Project) -> list[str]:
    path = project.directory / "items.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return sorted(json.dumps(json.loads(line), sort_keys=True) for line in lines)


def _count(project: Project) -> int:
    return project.rows(
        "SELECT count(*) FROM attempts a JOIN items i ON i.id = a.item_id "
        "JOIN crawls c ON c.id = i.crawl_id WHERE c.name = 'killed' AND a.outcome = 'ok'"
    )[0][0]


def _until(is_so: Any, project: Project) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, project.log()
        threading.Event().wait(0.02)  # only looking again can tell
