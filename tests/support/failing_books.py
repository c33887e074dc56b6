"""A bookshop of 900 pages that an unmodified spider crawls, and 80 of which fail in five ways."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from support import sites
from support.projects import Project

if TYPE_CHECKING:
    import subprocess
    from email.message import Message
    from pathlib import Path
    from typing import Any

LISTS = 40
BOOKS = 859  # with the lists and the front page 900 pages
FAILURES = 80

SPIDER = """
class Books(scrapy.Spider):
    name = "books"

    async def start(self):
        yield scrapy.Request(SITE + "/index.html")

    def parse(self, response):
        for href in response.css("li a::attr(href)").getall():
            yield response.follow(href, self.parse_list)

    def parse_list(self, response):
        for href in response.css("h3 a::attr(href)").getall():
            yield response.follow(href, self.parse_book)

    def parse_book(self, response):
        price = response.css(".price::text").get()
        yield {
            "title": response.css("h1::text").get(),
            "price": float(price.removeprefix("£")),
            "pages": int(response.css("[data-pages]").attrib["data-pages"]),
            "url": response.url,
        }
"""

# What is wrong with a book, and with how many: 60 mistakes are the same.
FLAWS = {"no price": 60, "no pages": 8, "missing": 6, "broken": 4, "no tag": 2}


class Bookshop(sites.Site):
    """A front page, lists by subject, and books; `stop_at` pages it waits to be released."""

    stop_at = 10_000

    def __init__(self, port: int = 0, host: str = "127.0.0.1") -> None:
        super().__init__(port, host)
        self.has_stopped = threading.Event()
        kinds = [kind for kind, number in FLAWS.items() for _ in range(number)]
        # They lie all over the shop: 331 and the number of books have no common divisor.
        self.flaws = {index * 331 % BOOKS: kind for index, kind in enumerate(kinds)}

    def respond(
        self, method: str, target: str, headers: Message, body: bytes
    ) -> tuple[int, dict[str, Any], bytes]:
        with self._lock:
            self.hits[target] += 1
            hits = self.hits.total()
        if hits > self.stop_at:
            self.has_stopped.set()
            self.may_answer.wait(120)
        status, text = self._page(target)
        return status, {"Content-Type": "text/html; charset=utf-8"}, text.encode()

    def _page(self, target: str) -> tuple[int, str]:
        name = target.removesuffix("/index.html").rpartition("_")[2]
        if target == "/index.html":
            return 200, "".join(f'<li><a href="/subjects/s_{n}/index.html">' for n in range(LISTS))
        if target.startswith("/subjects/"):
            books = range(int(name), BOOKS, LISTS)
            return 200, "".join(f'<h3><a href="{path(n)}">{n}</a></h3>' for n in books)
        return self._book(int(name))

    def _book(self, number: int) -> tuple[int, str]:
        flaw = self.flaws.get(number, "")
        if flaw in {"missing", "broken"}:
            return (404 if flaw == "missing" else 500), f"<h1>{flaw}</h1>"
        price = "Price on request" if flaw == "no price" else f"£{number % 50 + 5}.99"
        pages = "many" if flaw == "no pages" else number % 700 + 40
        tag = "" if flaw == "no tag" else f'<p class="price">{price}</p>'
        text = "It was a bright cold day in April, and the clocks were striking thirteen. " * 4
        title = f"The book of number {number}"
        return 200, f"<h1>{title}</h1>{tag}<p data-pages='{pages}'>{text}</p>"


def path(number: int) -> str:
    """Return where a book's page is."""
    return f"/catalogue/the-book-of-number-{number}_{number}/index.html"


def project(directory: Path, url: str, site: Bookshop, settings: str = "") -> Project:
    """Write a project with the spider, which crawls the shop into a database."""
    return Project(directory, url, site.url, package="books").write(
        SPIDER, "RETRY_TIMES = 1\nLOG_LEVEL = 'ERROR'\n" + settings
    )


def start(found: Project) -> subprocess.Popen:
    """Start the crawl."""
    return found.start("crawl", "books")
