"""The site without an end, the spider that crawls it, and what its graph must be in the end."""

from __future__ import annotations

import itertools
import threading
from collections import Counter, deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from support import sites

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from email.message import Message

AHEAD = 60  # pages that are known and not yet asked for
MOST_LINKS = 10
SITES = 8  # websites, each with a slot of its own
PER_GROUP = 50  # pages

# What a website's robots.txt asks for, and what it is instead.
ROBOTS = (
    b"User-agent: *\nCrawl-delay: 1e-320\n",
    b"User-agent: *\nCrawl-delay: 1e308\n",
    b"User-agent: *\nCrawl-delay: nan\n",
    b"User-agent: *\nCrawl-delay: -inf\n",
    b"User-agent: *\nCrawl-delay: 0.00000001\n",
    b"User-agent: *\nCrawl-delay: " + b"9" * 5000 + b"\n",
    b"\xff\x00" * 10_000,
    b"User-agent: *\n" + b"Disallow: /nowhere\n" * 4000,  # so large that a thread parses it
    b"",
)

SPIDER = """
import json
import time
from contextlib import suppress

from proj.places import HOSTS, PORT

with open("versions.json") as file:
    VERSIONS = json.load(file)


def page(number):
    url = f"http://{HOSTS[number % len(HOSTS)]}:{PORT}/page/{number}"
    return CreateItem(f"PAGE:{number}", tags=["page"], data={"url": url, "number": number})


def counted(key):
    return lambda old: {**old, key: old.get(key, 0) + 1}


def block():
    # The first that finds the file blocks its loop; another may find it at the same time.
    with suppress(FileNotFoundError):
        os.rename("block", f"blocked-{os.getpid()}")
        time.sleep(float(open(f"blocked-{os.getpid()}").read()))


class S(scrapy.Spider):
    name = "s"

    def seeds(self):
        yield page(0)

    def ask(self, item):
        return scrapy.Request(item.data["url"], headers={"Version": VERSIONS["parse"]})

    @task(tags=["page"], request="ask", version=VERSIONS["parse"])
    def parse(self, response, item):
        block()
        number = item.data["number"]
        for child in response.css("a::text").getall():
            yield page(int(child))
        group = f"GROUP:{number // 50}"
        yield CreateItem(group, tags=["group"], data={})
        yield UpdateData(counted(f"page {number} as {VERSIONS['parse']}"), id=group)
        yield UpdateMetadata({"kind": response.css("title::text").get().split("/")[1]})
        if number % 5 == 4:
            # Which of two comes first must not show, so that graphs can be compared.
            larger = lambda *two: max(two, key=lambda data: data["number"])
            yield RenameItem(to=f"FIVES:{number // 10}", if_taken="merge", merge=larger)

    @task(tags=["page"], depends_on=["parse"], download=False)
    async def digest(self, response, item):
        metadata = await item.get_metadata("parse")
        yield UpdateMetadata({"length": len(metadata["kind"])})

    @task(tags=["group"], download=False, version=VERSIONS["count"])
    def count(self, response, item):
        yield UpdateData(counted(f"counted as {VERSIONS['count']}"))
"""
SETTINGS = """
import os

LOG_LEVEL = "INFO"
DOWNLOAD_DELAY = 0.25
ROBOTSTXT_OBEY = True
ITEMGRAPH_MAX_CRAWL_DELAY = 0.3
CONCURRENT_REQUESTS_PER_DOMAIN = 4
ITEMGRAPH_LEASE = 5

if "LOCAL" in os.environ:  # it uses the embedded server itself, and starts it again
    ITEMGRAPH_DATABASE_URL = None
"""
TRACKED = "\nITEMGRAPH_LEAST_DEPTH = True\n"
TASKS = ("parse", "count")  # whose version may be raised


class EndlessSite(sites.Site):
    """A site that always has some more pages, until `end`; a page has the same links each time."""

    def __init__(self, port: int = 0) -> None:
        super().__init__(port, "0.0.0.0")  # it is several sites, for another host too
        self.server.handle_error = lambda *_: None  # those that ask are killed in the midst of it
        self.promised = 1  # how many pages there are
        self.asked: Counter[tuple[int, str]] = Counter()  # by page and version of the task
        self._links: dict[int, range] = {}
        self._is_over = False
        self._robots = itertools.cycle(ROBOTS)
        self._counting = threading.Lock()

    def end(self) -> None:
        """Have no links to new pages from now on."""
        self._is_over = True

    @property
    def repeats(self) -> int:
        """How many requests were made again at the same version of the task."""
        with self._counting:
            return self.asked.total() - len(self.asked)

    def respond(
        self, method: str, target: str, headers: Message, body: bytes
    ) -> tuple[int, dict[str, Any], bytes] | None:
        """Answer a request for /page/N, or for a robots.txt, which each time is another."""
        if target == "/robots.txt":
            return 200, {"Content-Type": "text/plain"}, next(self._robots)
        number = int(target.rpartition("/")[2])
        with self._counting:
            self.asked[number, headers["Version"]] += 1
            links = self._links_of(number)
        listed = "".join(f"<a href='/page/{one}'>{one}</a>" for one in links)
        text = f"<html><title>{target}</title><body>{listed}</body></html>"
        return 200, {"Content-Type": "text/html"}, text.encode()

    @property
    def links(self) -> Mapping[int, range]:
        """The pages that each page links to."""
        return self._links

    def _links_of(self, number: int) -> range:
        if number not in self._links:
            ahead = self.promised - len(self._links) - 1
            many = 0 if self._is_over else min(max(AHEAD - ahead, 1), MOST_LINKS)
            self._links[number] = range(self.promised, self.promised + many)
            self.promised += many
        return self._links[number]


@dataclass(frozen=True)
class State:
    """What an item must be: its names, tags, data, and of each task metadata and version."""

    names: frozenset[str]
    tags: frozenset[str]
    data: Mapping[str, Any]
    results: Mapping[str, tuple[Mapping[str, Any], str]]


def expected(
    pages: int, url_of: Callable[[int], str], latest: Mapping[str, str]
) -> dict[str, State]:
    """Return the graph of a crawl that nobody disturbed; of groups without their counts."""
    parsed = {"parse": ({"kind": "page"}, latest["parse"]), "digest": ({"length": 4}, "1")}
    states = {}
    for number in range(pages):
        name = name_of(number)
        before = states[name].names if name in states else frozenset()
        names = before | {name, f"PAGE:{number}"}
        data = {"url": url_of(number), "number": number}
        states[name] = State(names, frozenset({"page"}), data, parsed)
    for number in range(-(-pages // PER_GROUP)):
        name = f"GROUP:{number}"
        counted = {"count": ({}, latest["count"])}
        states[name] = State(frozenset({name}), frozenset({"group"}), {}, counted)
    return states


def name_of(number: int) -> str:
    """Return the name that a page's item has in the end."""
    return f"FIVES:{number // 10}" if number % 5 == 4 else f"PAGE:{number}"


def depths(links: Mapping[int, range]) -> dict[str, int]:
    """Return how deep each item is: of those that are merged as deep as the nearest of them."""
    behind: dict[str, set[str]] = {}
    for number, linked in links.items():
        one = behind.setdefault(name_of(number), set())
        one |= {*map(name_of, linked), f"GROUP:{number // PER_GROUP}"}
    found = {name_of(0): 0}
    nearest = deque(found)
    while nearest:
        one = nearest.popleft()
        for other in behind.get(one, set()) - found.keys():
            found[other] = found[one] + 1
            nearest.append(other)
    return found


def wrongs(found: Mapping[str, State], graph: Mapping[str, State]) -> list[str]:
    """Return where a graph differs from what is expected, apart from the counts of groups."""
    wrong = [f"{name} is missing" for name in graph.keys() - found.keys()]
    wrong += [f"{name} should not be" for name in found.keys() - graph.keys()]
    for name in graph.keys() & found.keys():
        state = found[name]
        if "group" in state.tags:
            state = replace(state, data={})
        if state != graph[name]:
            wrong.append(f"{name} is {state} and should be {graph[name]}")
    return wrong


def wrong_counts(
    found: Mapping[str, State], pages: int, versions: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return what was committed too often, or not at all.

    `versions` are those that each task had, one after another. What was committed under an old one
    is done again under the last: once, and under each before it at most once. Where two pages
    become one item, both may be done before that, and the one that is left once more if the other
    came late and with an older version.
    """
    wrong = []
    for number in range(pages):
        data = _counts(found, number // PER_GROUP)
        each = [data.get(f"page {number} as {version}", 0) for version in versions["parse"]]
        is_twin = number % 5 == 4 and len(each) > 1
        if sum(each) == 0 or max(each) > (2 if is_twin else 1) or (not each[-1] and not is_twin):
            wrong.append(f"page {number} was committed {each} times, by version")
    for number in range(-(-pages // PER_GROUP)):
        data = _counts(found, number)
        each = [data.get(f"counted as {version}", 0) for version in versions["count"]]
        if max(each) > 1 or not each[-1]:
            wrong.append(f"GROUP:{number} was committed {each} times, by version")
    return wrong


def _counts(found: Mapping[str, State], group: int) -> Mapping[str, Any]:
    state = found.get(f"GROUP:{group}")
    return state.data if state else {}
