"""One crawl, two kinds of crawler: a spider and a client of the frontier share its URLs."""

from __future__ import annotations

import json
import urllib.request
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor

import pytest
from support import frontier, sites
from support.frontier import discovered, known
from support.projects import until

AGENT = "the client"
HOSTS = 40

SPIDER = """
from urllib.parse import urlsplit

def address(number, path="page"):
    port = urlsplit(SITE).port
    return f"http://127.0.0.{number % 40 + 1}:{port}/{path}/{number}"

def page(number, path="page"):
    url = address(number, path)
    return CreateItem(f"URL:{url}", tags=["url"], data={"url": url})

class S(scrapy.Spider):
    name = "s"
    first = last = 0

    def seeds(self):
        for number in range(int(self.first), int(self.last)):
            yield page(number)

    @task(name="fetch", tags=["url"])
    def fetch(self, response, item):
        for number in response.css("a::text").getall():
            yield page(int(number), "tree")
"""
SETTINGS = """
ITEMGRAPH_CRAWL = "DEFAULT"
ITEMGRAPH_IGNORED_ARGUMENTS = "first,last"
CONCURRENT_REQUESTS = 4
"""


class Hosts(sites.Site):
    """Pages on every address of this machine's loopback network; `agents` are who fetched which.

    A page of the tree links to two others, by their numbers.
    """

    def __init__(self, port=0):
        super().__init__(port, "0.0.0.0")
        self.agents = defaultdict(set)
        self.leaves_from = 150

    def address(self, number, path="page"):
        """Return the URL of a page."""
        return f"http://127.0.0.{number % HOSTS + 1}:{self.server.server_port}/{path}/{number}"

    def respond(self, method, target, headers, body):
        """Answer, a little slowly."""
        agent = AGENT if headers["User-Agent"] == AGENT else "Scrapy"
        self.agents[target].add(agent)
        status, sent, page = self.answer(target)
        self.may_answer.wait(0.01)
        number = int(target.rpartition("/")[2])
        if target.startswith("/tree/") and number < self.leaves_from:
            links = (f"<a>{one}</a>" for one in (2 * number + 1, 2 * number + 2))
            page = "".join(links).encode()
        return status, sent, page


@pytest.fixture(scope="module")
def site_kind():
    """Return the site of many hosts."""
    return Hosts


def fetch(one):
    """Fetch a URL that the frontier gave; return it, and the numbers of the pages it links to."""
    asked = urllib.request.Request(one.url, headers={"User-Agent": AGENT})
    with urllib.request.urlopen(asked) as answer:
        text = answer.read().decode()
    return one, [int(part.partition("<")[0]) for part in text.split("<a>")[1:]]


def drain(client, site, is_done):
    """Get URLs as StormCrawler does, fetch them, tell what became of them, until all is done."""
    client.ask("SetDelay", delay_requestable=0)
    with ThreadPoolExecutor(4) as pool:
        while not is_done():
            given = client.ask(
                "GetURLs",
                crawlID="DEFAULT",
                max_urls_per_queue=10,
                max_queues=10,
                delay_requestable=300,
            )
            answers = []
            for one, links in pool.map(fetch, given):
                answers.append(known(one.url, 0, key=one.key))
                answers += [discovered(site.address(link, "tree")) for link in links]
            if answers:
                assert {status for _, status in client.put(*answers)} <= {"OK", "SKIPPED"}


def numbers(client):
    """Return how many URLs are left to fetch, and how many are completed."""
    one = client.ask("GetStats", crawlID="DEFAULT")
    return one.size, one.counts["completed"]


def test_a_spider_and_a_client_drain_one_crawl_of_a_thousand_urls(project, other, site):
    """UF-13: put by either, before and after the first server, each is fetched once (UF-1)."""
    for one in (project, other):
        one.write(SPIDER, SETTINGS)
    early = project.start("crawl", "s", "-a", "first=0", "-a", "last=400")
    until(lambda: len(site.hits) >= 20, project.log)
    with frontier.serving(project.url) as served:
        client = served.client
        put = client.put(*(discovered(site.address(number)) for number in range(400, 700)))
        assert Counter(status for _, status in put) == {"OK": 300}
        late = other.start("crawl", "s", "-a", "first=700", "-a", "last=1000")
        drain(client, site, lambda: numbers(client) == (0, 1000))
        runs = [project.finish(early), other.finish(late)]
        assert [run.stats["reason"] for run in runs] == ["finished"] * 2, runs[0].log
        assert site.hits == {f"/page/{number}": 1 for number in range(1000)}
        fetched = Counter(agent for agents in site.agents.values() for agent in agents)
        assert min(fetched[AGENT], fetched["Scrapy"]) > 50
        assert numbers(client) == (0, 1000)
        assert client.ask("CountURLs", crawlID="DEFAULT").value == 1000
    status = json.loads(project.scrapy("itemgraph", "status", "--json").output)
    (fetching,) = status["tasks"]
    assert (fetching["name"], fetching["completed"], fetching["fresh"]) == ("fetch", 1000, 1000)
    assert (fetching["waiting"], fetching["delayed"], fetching["claimed"]) == (0, 0, 0)


def test_what_one_crawler_finds_the_other_fetches(project, site):
    """UF-13: both discover pages, of which the other fetches some, and none is fetched twice."""
    project.write(SPIDER, SETTINGS)
    total = 2 * site.leaves_from + 1
    with frontier.serving(project.url) as served:
        client = served.client
        client.put(*(discovered(site.address(number, "tree")) for number in range(HOSTS)))
        crawling = project.start("crawl", "s")
        until(lambda: len(site.hits) >= 2, project.log)
        drain(client, site, lambda: numbers(client) == (0, total))
        run = project.finish(crawling)
    assert run.stats["reason"] == "finished", run.log
    assert site.hits == {f"/tree/{number}": 1 for number in range(total)}
    made = project.rows("SELECT data ->> 'url', created_by IS NOT NULL FROM items")
    found = {f"/tree/{url.rpartition('/')[2]}": is_spiders for url, is_spiders in made}
    assert any(site.agents[path] == {AGENT} for path, is_spiders in found.items() if is_spiders)
    later = [path for path, is_spiders in found.items() if not is_spiders][HOSTS:]
    assert any(site.agents[path] == {"Scrapy"} for path in later)
