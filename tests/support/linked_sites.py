"""Sites of numbered pages that link to each other, and how far each is from the first."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from support.sites import Site

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Links = Mapping[int, Sequence[int]]

SPIDER = """
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/0"]

    def parse(self, response):
        for href in response.css("a::attr(href)").getall():
            yield response.follow(href)
"""

# The page 4 is linked by 3, which is three away from 0, and by the slow page 1, which is one away.
SHORTCUT: Links = {0: (1, 2), 2: (3,), 3: (4,), 1: (4,), 4: (5,), 5: (6,), 6: (7,)}


class LinkedSite(Site):
    """Pages /page/N with `links`, of which some are `slow` and answer after so many seconds."""

    def __init__(self, port: int = 0, host: str = "127.0.0.1") -> None:
        super().__init__(port, host)
        self.links: Links = SHORTCUT
        self.slow: dict[int, float] = {1: 1.0}
        self.fails_first: set[int] = set()
        self.redirects: dict[int, int] = {}

    def answer(self, target: str) -> tuple[int, dict[str, str], bytes]:
        """Answer a page with its links, or where it redirects to."""
        kind, _, rest = target.lstrip("/").partition("/")
        if kind != "page" or not rest.isdigit():
            return super().answer(target)
        number = int(rest)
        with self._lock:
            self.hits[target] += 1
            hit = self.hits[target]
        time.sleep(self.slow.get(number, 0.0))
        headers = {"Content-Type": "text/html"}
        if number in self.fails_first and hit == 1:
            return 503, headers, b"not yet"
        if (to := self.redirects.get(number)) is not None:
            return 302, {"Location": f"/page/{to}"}, b""
        anchors = "".join(f'<a href="/page/{one}">{one}</a>' for one in self.links.get(number, ()))
        return 200, headers, f"<html><body>{anchors}</body></html>".encode()

    @property
    def fetched(self) -> set[int]:
        """The pages that somebody asked for."""
        paths = (one.removeprefix("/page/") for one in self.hits)
        return {int(one) for one in paths if one.isdigit()}


def depths(links: Links, roots: Sequence[int] = (0,)) -> dict[int, int]:
    """Return how far each page is from the nearest root, by the way of breadth first."""
    found = dict.fromkeys(roots, 0)
    front = list(roots)
    while front:
        following = []
        for page in front:
            for child in links.get(page, ()):
                if child not in found:
                    found[child] = found[page] + 1
                    following.append(child)
        front = following
    return found


def ball(links: Links, limit: int) -> set[int]:
    """Return the pages that are at most so far away."""
    return {page for page, depth in depths(links).items() if depth <= limit}


def random_links(seed: int, pages: int, most: int = 5) -> dict[int, list[int]]:
    """Return links of a random site with cycles, in which most pages can be reached.

    Chains make paths that are found first and are long; a few pages link far ahead.
    """
    chance = random.Random(seed)
    links = {
        page: [chance.randrange(pages) for _ in range(chance.randrange(most))]
        for page in range(pages)
    }
    for page in range(pages - 1):
        if chance.random() < 0.7:
            links[page].append(page + 1)
        chance.shuffle(links[page])
    return links
