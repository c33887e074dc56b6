"""A user's first minutes: a project of `scrapy startproject`, a spider, and the one line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support import logs, sites
from support.projects import PACKAGE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LINE = 'ADDONS = {"scrapy_itemgraph.Addon": 500}'
PAGES = 10

SPIDER = """
import scrapy


class QuotesSpider(scrapy.Spider):
    name = "quotes"
    start_urls = ["%(site)s/quotes/1"]

    def parse(self, response):
        for quote in response.css("div.quote"):
            yield {"text": quote.css("span.text::text").get()}
        yield from response.follow_all(css="span.author a", callback=self.parse_author)
        next_page = response.css("li.next a::attr(href)").get()
        if next_page is not None:
            yield response.follow(next_page, self.parse)

    def parse_author(self, response):
        yield {"name": response.css("h3::text").get()}
"""


class Quotes(sites.Site):
    """Pages of quotes with their authors, one of whom holds up the crawl."""

    def answer(self, target: str) -> tuple[int, dict[str, str], bytes]:
        """Answer as the site of Scrapy's tutorial does."""
        kind, _, rest = target.lstrip("/").partition("/")
        headers = {"Content-Type": "text/html"}
        if kind == "quotes":
            self.hits[target] += 1
            page = int(rest)
            after = f'<li class="next"><a href="/quotes/{page + 1}">Next</a></li>'
            quotes = "".join(
                f'<div class="quote"><span class="text">{page}.{n}</span>'
                f'<span class="author"><a href="/author/{(page + n) % 7}">?</a></span></div>'
                for n in range(3)
            )
            return 200, headers, (quotes + (after if page < PAGES else "")).encode()
        if kind == "author":
            self.hits[target] += 1
            if rest == "5":
                self.arrived.set()
                self.may_answer.wait(120)
            return 200, headers, f"<h3>Author {rest}</h3>".encode()
        return super().answer(target)


@pytest.fixture
def site() -> Iterator[Quotes]:
    """Serve quotes."""
    with sites.site(Quotes) as one:
        yield one


def scrapy(directory: Path, *arguments: str) -> subprocess.Popen:
    """Start a scrapy command."""
    return subprocess.Popen(
        [sys.executable, "-m", "scrapy", *arguments],
        cwd=directory,
        env=os.environ | {"PYTHONPATH": str(PACKAGE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finished(process: subprocess.Popen) -> str:
    """Wait for a command; return what it wrote."""
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    return logs.take(output)


def test_one_line_makes_a_project_durable(tmp_path, site):
    """With the line a kill -9 costs the pages under way, and the next start does the rest."""
    finished(scrapy(tmp_path, "startproject", "tutorial", str(tmp_path)))
    settings = tmp_path / "tutorial" / "settings.py"
    given = settings.read_text()
    assert given.count("\nADDONS = {}\n") == 1
    settings.write_text(given.replace("\nADDONS = {}\n", f"\n{LINE}\n"))
    spider = tmp_path / "tutorial" / "spiders" / "quotes.py"
    spider.write_text(SPIDER % {"site": site.url})
    quick = ("-s", "DOWNLOAD_DELAY=0")

    killed = scrapy(tmp_path, "crawl", "quotes", *quick)
    assert site.arrived.wait(60)
    killed.kill()
    first_log, _ = killed.communicate()
    before = dict(site.hits)
    site.may_answer.set()
    items = tmp_path / "items.jsonl"
    log = finished(scrapy(tmp_path, "crawl", "quotes", *quick, "-O", str(items)))
    assert "itemgraph/claimed" in log
    status = json.loads(finished(scrapy(tmp_path, "itemgraph", "status", "--json")))
    why = finished(scrapy(tmp_path, "itemgraph", "explain", f"{site.url}/author/5"))

    pages = {f"/quotes/{n}" for n in range(1, PAGES + 1)} | {f"/author/{n}" for n in range(7)}
    assert {target for target in site.hits if target != "/robots.txt"} == pages
    again = {target for target, hits in site.hits.items() if hits > 1 and target != "/robots.txt"}
    assert "/quotes/1" not in again
    assert "/author/5" in again
    assert len(items.read_text().splitlines()) < PAGES * 3 + 7
    assert before["/quotes/1"] == 1
    assert "alembic" not in first_log
    assert "garbage" not in first_log.replace("DEBUG: Python collects garbage", "")
    ours = re.findall(r"\[scrapy_itemgraph\S*\] INFO: (\w+ \w+)", first_log)
    assert ours == ["Setting up", "PostgreSQL started", "Run 1"]
    assert "INFO: 17 pages are done" in log
    assert status
    assert "fresh" in why
