"""Scrapy projects of one spider, run by the real `scrapy` command in a process of its own.

`ITEMGRAPH_TEST_REACTORLESS=1` in the environment runs them without a Twisted reactor.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from scrapy_itemgraph.postgres import engine as engines
from support import logs, processes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PACKAGE = Path(__file__).parents[2]
PATIENCE = 120.0
IS_REACTORLESS = os.environ.get("ITEMGRAPH_TEST_REACTORLESS") == "1"

SETTINGS = """
import atexit
import gc

# As our add-on sets it in a moment: loading modules takes a twentieth less.
gc.set_threshold(10_000, 20, 50)
# As it ends Python walks all that is alive three times: a fifth of a start. Freezing comes last.
atexit.register(gc.freeze)
atexit.register(gc.collect)
# Scrapy has its callers' modules searched when this is loaded: early there are fewer of them.
import scrapy.core.downloader.contextfactory
from scrapy.settings.default_settings import EXTENSIONS_BASE as _STOCK

# What opens ports of its own takes a tenth of a start to load.
EXTENSIONS_BASE = {{
    name: order for name, order in _STOCK.items() if not name.endswith(("Console", "Control"))
}}
BOT_NAME = "proj"
SPIDER_MODULES = ["proj.spiders"]
ADDONS = {{"scrapy_itemgraph.Addon": 500}}
EXTENSIONS = {{"proj.stats.DumpStats": 0}}
ROBOTSTXT_OBEY = False
DOWNLOAD_DELAY = 0
RETRY_TIMES = 1
LOG_LEVEL = "DEBUG"
ITEMGRAPH_DATABASE_URL = {url!r}
ITEMGRAPH_AUTO_MIGRATE = True
# By these a test has its spider do otherwise at another start of the same crawl.
ITEMGRAPH_IGNORED_ARGUMENTS = "break,count,ends,first,fixed,go,hang,kind,pause,slow"
"""

STATS = """
import json

from scrapy import signals


class DumpStats:
    def __init__(self, crawler):
        self.crawler = crawler
        crawler.signals.connect(self.closed, signal=signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    def closed(self, reason):
        with open("stats.json", "w") as file:
            json.dump(self.crawler.stats.get_stats() | {"reason": reason}, file, default=str)
"""

SPIDER = """
import asyncio
import os
from datetime import timedelta

import scrapy
from scrapy.exceptions import CloseSpider, DropItem, IgnoreRequest
from scrapy_itemgraph import *
from scrapy_itemgraph import task

SITE = os.environ["SITE"]


def seed(name, path="/page", tags=("page",), **data):
    return CreateItem(id=name, tags=list(tags), data={"url": SITE + path, **data})

"""

# One item whose task needs no page.
ONE_ITEM = """
class S(scrapy.Spider):
    name = "s"

    def seeds(self):
        yield CreateItem("ITEM", tags=["item"])

    @task(tags=["item"], download=False)
    def work(self, response, item):
        yield UpdateData({"done": True})
"""


@dataclass
class Run:
    """What a finished command left behind."""

    code: int
    log: str
    output: str
    stats: dict = field(default_factory=dict)


@dataclass
class Project:
    """A project directory, its database, and the site that it crawls."""

    directory: Path
    url: str
    site_url: str = ""
    package: str = "proj"  # texts of modules and settings call it `proj`
    started: list[subprocess.Popen] = field(default_factory=list)
    _logs: list[Path] = field(default_factory=list)  # of what was started

    def write(self, spider: str, settings: str = "", **modules: str) -> Project:
        """Write the spider `s`, extra settings, and extra modules of the package."""
        package = self.directory / self.package
        (package / "spiders").mkdir(parents=True, exist_ok=True)
        (self.directory / "scrapy.cfg").write_text(
            f"[settings]\ndefault = {self.package}.settings\n"
        )
        for name in ("__init__.py", "spiders/__init__.py"):
            (package / name).write_text("")
        (package / "stats.py").write_text(STATS)
        reactorless = "TWISTED_REACTOR_ENABLED = False\n" if IS_REACTORLESS else ""
        stock = SETTINGS.format(url=self.url) + reactorless
        texts = {"settings": stock + textwrap.dedent(settings)}
        texts["spiders/s"] = SPIDER + textwrap.dedent(spider)
        texts |= {name: textwrap.dedent(text) for name, text in modules.items()}
        for name, text in texts.items():
            (package / f"{name}.py").write_text(re.sub(r"\bproj\.", f"{self.package}.", text))
        return self

    def start(
        self,
        *arguments: str,
        PYTHONPATH: str = "",  # noqa: N803
        within: Sequence[str] = (),
    ) -> subprocess.Popen:
        """Start a scrapy command; its log goes to a file of its own, which `logs` looks at."""
        return self.start_python("-m", "scrapy", *arguments, PYTHONPATH=PYTHONPATH, within=within)

    def start_python(
        self,
        *arguments: str,
        PYTHONPATH: str = "",  # noqa: N803
        within: Sequence[str] = (),
    ) -> subprocess.Popen:
        """Start Python; its standard error is the log, `finish` returns its standard output.

        `within` is a command that becomes Python where it should run, such as on another host.
        """
        environment = os.environ | {
            "SITE": self.site_url,
            "PYTHONPATH": os.pathsep.join(filter(None, [PYTHONPATH, str(PACKAGE)])),
            "PYTHONUNBUFFERED": "1",
        }
        path = self.directory / f"log-{len(self._logs)}.txt"
        logs.watch(path)
        with path.open("w") as log, self._output(len(self.started)).open("w") as output:
            process = processes.Popen(
                [*within, sys.executable, *arguments],
                cwd=self.directory,
                env=environment,
                stdout=output,
                stderr=log,
            )
        self.started.append(process)
        self._logs.append(path)
        return process

    def finish(self, process: subprocess.Popen, seconds: float = 180) -> Run:
        """Wait for a command to end."""
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            kill(process)
            raise AssertionError(f"still running:\n{self.log(process)}") from None
        stats = self.directory / "stats.json"
        return Run(
            process.returncode,
            self.log(process),
            self._output(self.started.index(process)).read_text(),
            json.loads(stats.read_text()) if stats.exists() else {},
        )

    def _output(self, number: int) -> Path:
        return self.directory / f"output-{number}.txt"

    def log(self, process: subprocess.Popen | None = None) -> str:
        """Return the log so far of a command, by default of the last one that was started."""
        number = -1 if process is None else self.started.index(process)
        return self._logs[number].read_text()

    def wait_for(self, text: str) -> None:
        """Wait until the log has `text`."""
        until(lambda: text in self.log(), self.log)

    def scrapy(self, *arguments: str) -> Run:
        """Run a scrapy command."""
        (self.directory / "stats.json").unlink(missing_ok=True)
        return self.finish(self.start(*arguments))

    def crawl(self, *arguments: str) -> Run:
        """Crawl with the spider `s`."""
        return self.scrapy("crawl", "s", *arguments)

    def rows(self, statement: str) -> list[tuple]:
        """Return the rows of a query on the project's database."""
        engine = engines.sync_engine(self.url)
        try:
            with engine.connect() as connection:
                return [tuple(row) for row in connection.execute(sa.text(statement))]
        finally:
            engine.dispose()

    def attempts(self) -> list[tuple[str, str, str, str | None]]:
        """Return (item, task, outcome, type of error) of every attempt, in order."""
        return self.rows(
            "SELECT i.name, t.name, a.outcome, a.error->>'type' FROM attempts a "
            "JOIN items i ON i.id = a.item_id JOIN tasks t ON t.id = a.task_id ORDER BY a.id"
        )

    def outcomes(self) -> dict[str, list[str]]:
        """Return the outcomes of each item's attempts; requests are no items here."""
        found: dict[str, list[str]] = {}
        for item, _, outcome, _ in self.attempts():
            if not item.startswith(("REQ:", "START:")):
                found.setdefault(item, []).append(outcome)
        return found

    def request_outcomes(self) -> dict[str, list[str]]:
        """Return the outcomes of each request's attempts, by the path of its URL."""
        found: dict[str, list[str]] = {}
        for url, outcome in self.rows(
            "SELECT i.data->>'url', a.outcome FROM attempts a JOIN items i ON i.id = a.item_id "
            "JOIN tasks t ON t.id = a.task_id WHERE t.is_callback ORDER BY a.id"
        ):
            found.setdefault(url.removeprefix(self.site_url), []).append(outcome)
        return found

    def errors(self) -> list[tuple[str, str]]:
        """Return (URL, message) of each open failure."""
        return self.rows(
            "SELECT i.data->>'url', f.error->>'message' FROM failures f "
            "JOIN items i ON i.id = f.item_id WHERE f.handled_at IS NULL ORDER BY f.id"
        )

    def claimed(self) -> int:
        """Return how much work is still claimed."""
        return self.rows("SELECT count(*) FROM work WHERE token IS NOT NULL")[0][0]

    def data(self) -> dict[str, dict]:
        """Return the data of every item by its id."""
        return dict(self.rows("SELECT name, data FROM items"))


def until(holds: Callable[[], bool], say: Callable[[], str] = str) -> None:
    """Wait until something holds that only looking again can tell; `say` tells what is instead."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, say()
        time.sleep(0.02)


def kill(process: subprocess.Popen) -> None:
    """Kill -9."""
    process.kill()
    process.wait()
