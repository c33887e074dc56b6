"""Crawls of a site that is made up by a download handler: no network, and as many pages as wanted.

Page n links to two pages that nobody has linked to yet, as long as there are such, and to seven
that are known. A page is a small JSON document, so that what is measured is not a parser.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conftest import new_database

from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres import migrate

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
# Spider and module of each: plain Scrapy is to import nothing of ours.
CONTESTANTS = {"plain Scrapy": "plain", "drop-in": "plain", "task spider": "task"}

SETTINGS = """
import os

LOG_LEVEL = "INFO"
DOWNLOAD_HANDLERS = {"http": "made.Pages"}
CONCURRENT_REQUESTS = 32
CONCURRENT_REQUESTS_PER_DOMAIN = 32
CONCURRENT_ITEMS = 16
CLOSESPIDER_PAGECOUNT = int(os.environ.get("STOP_AFTER", "0"))
DOWNLOAD_DELAY = 0
ROBOTSTXT_OBEY = False
TELNETCONSOLE_ENABLED = False
"""

MADE = '''
"""Pages made up, and what of the CPU they and a spider's own code take."""

import asyncio
import json
import os
import time

from scrapy.core.downloader.handlers.base import BaseDownloadHandler
from scrapy.http import TextResponse

HOSTS = int(os.environ.get("HOSTS", "1"))
STARTS = int(os.environ.get("STARTS", "1"))  # pages that are known from the start
LINKS = int(os.environ.get("LINKS", "0"))  # of each page that is known, in the place of its two
PAGES = STARTS + LINKS if LINKS else int(os.environ["PAGES"])
LATENCY = 0.002  # seconds


def address(number):
    return f"http://made-{number % HOSTS}.example/page/{number}"


class Pages(BaseDownloadHandler):
    async def download_request(self, request):
        await asyncio.sleep(LATENCY)
        number = int(request.url.rpartition("/")[2])
        began = time.thread_time()
        new = [2 * number + 1, 2 * number + 2]
        if LINKS and number < STARTS:
            new = range(STARTS, PAGES)
        known = [number * 7919 % (number + 1 + one) for one in range(7)]
        links = [address(one) for one in (*new, *known) if STARTS <= one < PAGES]
        body = json.dumps({"title": f"Page {number}", "links": links}).encode()
        Own.spent += time.thread_time() - began
        return TextResponse(request.url, body=body, encoding="utf-8")


class Own:
    """Seconds of CPU that the spider's own code, and making pages, took so far."""

    spent = 0.0


def own(made):
    """Go through what a callback yields, and count what making it takes."""
    while True:
        began = time.thread_time()
        try:
            one = next(made)
        except StopIteration:
            return
        finally:
            Own.spent += time.thread_time() - began
        yield one
'''

PLAIN = """
import scrapy
from made import STARTS, address, own


class Plain(scrapy.Spider):
    name = "plain"

    async def start(self):
        for number in range(STARTS):
            yield scrapy.Request(address(number), dont_filter=True)

    def parse(self, response):
        return own(self.links(response))

    def links(self, response):
        page = response.json()
        for url in page["links"]:
            yield scrapy.Request(url)
        yield {"title": page["title"]}
"""

TASK = """
import scrapy
from made import STARTS, address, own
from scrapy_itemgraph import CreateItem, UpdateData, task


class Task(scrapy.Spider):
    name = "task"

    def seeds(self):
        for number in range(STARTS):
            url = address(number)
            yield CreateItem(id=url, tags=["page"], data={"url": url})

    @task(tags=["page"])
    def page(self, response, item):
        return own(self.links(response))

    def links(self, response):
        page = response.json()
        for url in page["links"]:
            yield CreateItem(id=url, tags=["page"], data={"url": url})
        yield UpdateData({"title": page["title"]})
"""


def write_project(directory: Path, **modules: str) -> None:
    """Write the project, and modules of a benchmark's own."""
    (directory / "scrapy.cfg").write_text("[settings]\ndefault = settings\n")
    files = {"settings": SETTINGS, "made": MADE, "plain": PLAIN, "task": TASK, **modules}
    for name, text in files.items():
        (directory / f"{name}.py").write_text(text)


def crawl(
    project: Path, contestant: str, server: str, pages: int, extension: str, **environment: str
) -> Any:
    """Crawl all pages once, on a new graph; return what the extension wrote to `seen.json`."""
    seen = project / "seen.json"
    seen.unlink(missing_ok=True)
    spider = CONTESTANTS[contestant]
    given = {"SPIDER_MODULES": spider, "EXTENSIONS": json.dumps({extension: 0})}
    with migrated(server) as url:
        if contestant != "plain Scrapy":
            given |= {"ADDONS": '{"scrapy_itemgraph.Addon": 500}', "ITEMGRAPH_DATABASE_URL": url}
        options = [part for name, value in given.items() for part in ("-s", f"{name}={value}")]
        run = subprocess.run(
            [sys.executable, "-m", "scrapy", "crawl", spider, *options],
            check=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=project,
            env=os.environ | environment | {"PAGES": str(pages), "PYTHONPATH": str(ROOT)},
        )
    if run.returncode or not seen.exists() or "] ERROR: " in run.stderr:
        raise SystemExit(f"{contestant} failed:\n{run.stderr[-6000:]}")
    found = json.loads(seen.read_text())
    is_cut = "STOP_AFTER" in environment
    if found["pages"] < pages or (found["pages"] > pages and not is_cut):
        raise SystemExit(f"{contestant} fetched {found['pages']} pages instead of {pages}")
    return found


@contextmanager
def migrated(server: str) -> Iterator[str]:
    """Yield a database with our schema."""
    with new_database(server) as url:
        engine = engines.sync_engine(url)
        with engine.begin() as connection:
            migrate.ensure(connection, auto=True)
        engine.dispose()
        yield url
