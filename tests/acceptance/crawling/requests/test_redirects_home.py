"""Redirects that come home: their target has the fingerprint of a request of their own chain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support import sites

if TYPE_CHECKING:
    from email.message import Message

pytestmark = pytest.mark.tracebacks("IgnoreRequest: max redirections reached")

# Where each page redirects to whose target Scrapy takes for the same request.
SPELLINGS = {
    "/%7Eann/": "/~ann/",
    "/o?b=1&a=2": "/o?a=2&b=1",
    "/empty?x": "/empty?x=",
    "/case?q=%c3%a9": "/case?q=%C3%A9",
    "/plus?q=a+b": "/plus?q=a%20b",
}
# Pages that are read once the site has given its cookie on another page.
WITH_COOKIE = ("/a", "/refresh", "/start")
FORMS = (*SPELLINGS, "/a", "/refresh")
READ = sorted([*SPELLINGS.values(), "/a", "/refresh"])

LINKS = f"""
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page"]

    def parse(self, response):
        for path in {FORMS!r}:
            yield scrapy.Request(SITE + path, self.read)

    def read(self, response):
        yield {{"url": response.url}}
"""
CARRIED = f"""
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page"]

    def parse(self, response):
        for path in {FORMS!r}:
            yield scrapy.Request(SITE + path, lambda response: self.read(response))

    def read(self, response):
        yield {{"url": response.url}}
"""
TASKS = f"""
class S(scrapy.Spider):
    name = "s"

    def seeds(self):
        for path in {FORMS!r}:
            yield CreateItem(id=path, tags=["page"], data={{"url": SITE + path}})

    @task(tags=["page"])
    def read(self, response, item):
        yield {{"url": response.url}}
"""
FOLLOW_UPS = f"""
class S(scrapy.Spider):
    name = "s"

    def seeds(self):
        yield seed("ITEM")

    @task(tags=["page"])
    def begin(self, response, item):
        for path in {FORMS!r}:
            yield scrapy.Request(SITE + path, self.read)

    def read(self, response, item):
        yield {{"url": response.url}}
"""
START = """
class S(scrapy.Spider):
    name = "s"

    async def start(self):
        for path in ("/start", "/%7Eann/"):
            yield scrapy.Request(SITE + path, self.read)

    def read(self, response):
        yield {"url": response.url}
"""
ROOT = """
from scrapy_itemgraph.contrib.sites import SiteSpider

class S(SiteSpider):
    name = "s"

    def __init__(self, **kwargs):
        super().__init__(url=SITE + "/start", **kwargs)
"""
RINGS = """
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page", SITE + "/ring/start"]

    def parse(self, response):
        yield scrapy.Request(SITE + "/ring/link", self.read)
        yield scrapy.Request(SITE + "/ring/carried", lambda response: self.read(response))

    def read(self, response):
        yield {"url": response.url}
"""
RINGS_OF_TASKS = """
class S(scrapy.Spider):
    name = "s"

    def seeds(self):
        yield seed("OWN", "/ring/own")
        yield seed("PART", "/page", tags=["whole"])

    @task(tags=["page"])
    def read(self, response, item):
        yield {"url": response.url}

    @task(tags=["whole"])
    def whole(self, response, item):
        yield scrapy.Request(SITE + "/ring/part", self.more)

    def more(self, response, item):
        yield {"url": response.url}
"""
SHORT = "REDIRECT_MAX_TIMES = 3\n"


class Homing(sites.Site):
    """A site that spells its URLs in one way, and gives a cookie on the way to some pages."""

    def respond(
        self, _method: str, target: str, headers: Message, _body: bytes
    ) -> tuple[int, dict[str, Any], bytes]:
        """Answer with a redirect to the right spelling, the way to the cookie, or a page."""
        self.hits[target] += 1
        path, _, query = target.partition("?")
        html = {"Content-Type": "text/html"}
        if target in SPELLINGS:
            return 301, {"Location": SPELLINGS[target]}, b""
        if path in WITH_COOKIE and query == "c=1":
            home = {"Set-Cookie": f"seen{path[1:]}=1; Path=/"}
            return _led(path, path, home)
        if path in WITH_COOKIE and f"seen{path[1:]}=1" not in headers.get("Cookie", ""):
            return _led(path, f"{path}?c=1", {})
        if path.startswith("/ring/"):
            return 302, {"Location": path if query else f"{path}?c=1"}, b""
        return 200, html, b'<a href="/linked">further</a>'


def _led(path: str, to: str, headers: dict[str, str]) -> tuple[int, dict[str, Any], bytes]:
    """Lead on by a redirect, or by a meta refresh."""
    if path == "/refresh":
        refresh = f'<meta http-equiv="refresh" content="0; url={to}">'
        return 200, {"Content-Type": "text/html", **headers}, refresh.encode()
    return 302, {"Location": to, **headers}, b""


@pytest.fixture(scope="module")
def site_kind() -> type[sites.Site]:
    """Return a site whose redirects come home."""
    return Homing


def read(project, run) -> list[str]:
    """Return the pages that callbacks were given, from the log of scraped items."""
    lines = [line for line in run.log.splitlines() if line.startswith("{'url': '")]
    return sorted(line.split("'")[3].removeprefix(project.site_url) for line in lines)


@pytest.mark.parametrize(
    "spider",
    [
        pytest.param(LINKS, marks=pytest.mark.crawls(LINKS), id="links"),
        pytest.param(CARRIED, marks=pytest.mark.crawls(CARRIED), id="carried"),
        pytest.param(TASKS, marks=pytest.mark.crawls(TASKS), id="tasks"),
        pytest.param(FOLLOW_UPS, marks=pytest.mark.crawls(FOLLOW_UPS), id="follow-ups"),
    ],
)
def test_norconex_361_pages_are_read_whose_redirects_come_home(spider, run, project):
    """Each page is fetched and read once, whoever asks for it and however it is spelt."""
    assert run.stats["reason"] == "finished", run.log
    assert read(project, run) == READ
    assert project.errors() == []
    assert {outcome for *_, outcome, _ in project.attempts()} == {"ok"}


@pytest.mark.crawls(START)
def test_scrapy_1225_filtered_start_requests_come_home(run, project):
    """Start requests without dont_filter are read, too."""
    assert run.stats["reason"] == "finished", run.log
    assert read(project, run) == ["/start", "/~ann/"]


@pytest.mark.crawls(ROOT)
def test_norconex_361_the_root_of_a_site_comes_home(run, project, site):
    """The spider `site` has the root, and goes on with its links."""
    assert run.stats["reason"] == "finished", run.log
    assert site.hits["/start"] == 2
    assert site.hits["/linked"] == 1
    assert set(project.request_outcomes()["/start"]) == {"ok"}


@pytest.mark.crawls(RINGS, SHORT)
def test_a_ring_of_redirects_is_a_failure_of_its_page(run, project, site):
    """REDIRECT_MAX_TIMES ends it, and that is a failure that says so, not a refusal."""
    assert run.stats["reason"] == "finished", run.log
    assert read(project, run) == []
    outcomes = project.request_outcomes()
    assert outcomes == {path: ["failed"] for path in ("/page", "/ring/link", "/ring/start")}
    kinds = {kind for *_, outcome, kind in project.attempts() if outcome == "failed"}
    assert kinds == {"too many redirects"}
    assert {message for _, message in project.errors()} == {"max redirections reached"}
    assert all(site.hits[f"/ring/{one}"] == 2 for one in ("link", "carried", "start"))


@pytest.mark.crawls(RINGS_OF_TASKS, SHORT)
def test_a_ring_of_redirects_is_a_failure_of_its_task(run, project):
    """That of a task's own request, and that of a request that goes on from its page."""
    assert run.stats["reason"] == "finished", run.log
    assert project.outcomes() == {"OWN": ["failed"], "PART": ["failed"]}
    assert {kind for *_, kind in project.attempts()} == {"too many redirects"}
