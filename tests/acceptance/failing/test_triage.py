"""A plain spider's failures, from the first look to the run that mends them, on the terminal."""

from __future__ import annotations

import re

import pytest
from support import sites

pytestmark = pytest.mark.tracebacks(
    "HttpError: Ignoring non-200 response", "ValueError: could not convert"
)

SPIDER = """
import scrapy


class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/"]

    def parse(self, response):
        yield from response.follow_all(css="a", callback=self.parse_book)

    def parse_book(self, response):
        yield {"price": float(response.css("p::text").get())}  # LINE
"""


class Shop(sites.Site):
    """Nine books: three are not found, and of three the price is a sentence, until it is mended."""

    is_mended = False

    def respond(self, _method, target, _headers, _body):
        """Answer with a page, or with 404."""
        self.hits[target] += 1
        headers = {"Content-Type": "text/html"}
        if target == "/":
            return 200, headers, "".join(f'<a href="/{n}">.</a>' for n in range(9)).encode()
        if target[1:] in "036" and not self.is_mended:
            return 404, headers, b"no"
        price = "ask us" if target[1:] in "147" and not self.is_mended else "9.5"
        return 200, headers, f"<p>{price}</p>".encode()


def test_failures_of_a_plain_spider_are_triaged_on_the_terminal(project):
    """Groups, one with its line and page, handling by group and by text; then all are fetched."""
    with sites.site(Shop) as site:
        project.site_url = site.url
        project.write(SPIDER).crawl()

        def run(*words):
            return project.scrapy("itemgraph", *words).output

        _, *groups = run("failures", "--groups").splitlines()
        (broken,) = [line for line in groups if "ValueError" in line]
        number = broken.split()[0]
        one = run("failures", number)
        counted = run("handle", "--error", "http 404", "--dry-run")
        not_found = run("handle", "--error", "http 404")
        undone = project.scrapy("itemgraph", "unhandle", number)
        price = run("handle", "--group", number)
        site.is_mended = True
        before = site.hits.copy()
        again = project.crawl()

    assert len(groups) == 2
    assert re.search(r" 3  \S+ .*parse_book  +ValueError: cou.*  S\.parse_book$", broken)
    assert f"page       {site.url}/" in one
    assert "status     200\n" in one
    assert "callback   parse_book\n" in one
    assert "# LINE" in one
    assert "  <p>ask us</p>\n" in one
    assert f"  scrapy itemgraph handle {number}\n" in one
    assert counted == "would handle 3; nothing was changed\n"
    assert not_found.startswith("3 handled; they may run again\nnext\n  scrapy crawl s -s ")
    assert undone.code == 1  # it is open
    assert price.startswith("3 handled; they may run again\n")
    assert again.code == 0, again.log
    assert {path for path in site.hits if site.hits[path] > before[path]} >= {
        f"/{n}" for n in (0, 3, 6, 1, 4, 7)
    }
    assert project.scrapy("itemgraph", "failures").output == "no failure is open\n"
