"""Nothing that concerns one claim ends more than that claim."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from support.projects import kill, until

from scrapy_itemgraph import CreateItem
from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.postgres import engine as engines

pytestmark = pytest.mark.tracebacks(
    "LookupError: no fingerprint for",
    "ValueError: nobody can read this",
    "Silent: <exception str() failed>",
    "what the callback awaited was cancelled",
)

SPIDER = """
class Silent(Exception):
    def __str__(self):
        raise ValueError("nobody can read this")


class S(scrapy.Spider):
    name = "s"

    async def start(self):
        yield scrapy.Request(SITE + "/page/start", self.page)

    @task(tags=["page"])
    def t_page(self, response, item):
        yield UpdateData({"done": True})
        if item.id == "silent":
            raise Silent()

    @task(tags=["limited"], rate_limit_by_tag={"limited": "1000/s"})
    def t_limited(self, response, item):
        yield UpdateData({"done": True})

    def page(self, response):
        yield UpdateData({"done": True})
"""
# Of the kind that a subclass of Scrapy's may be: it raises, or returns what it should not.
ODD = """
from scrapy.utils.request import RequestFingerprinter


class Odd(RequestFingerprinter):
    def fingerprint(self, request):
        if "/odd" in request.url:
            raise LookupError("no fingerprint for " + request.url)
        return super().fingerprint(request)
"""
SETTINGS = """
REQUEST_FINGERPRINTER_CLASS = "proj.odd.Odd"
ITEMGRAPH_CLAIM_BATCH = 50
"""


def deep(levels):
    """Return JSON of so many levels."""
    return '{"url": "x", "deep": ' + "[" * levels + "]" * levels + "}"


BAD_DATA = {
    "deep": deep(500),
    "abyss": deep(5_000),
    "list": "[1, 2]",
    "text": '"text"',
    "nothing": "null",
    "long-number": '{"url": "http://a.b/", "number": ' + "9" * 5000 + "}",
    "no-host": '{"url": "http://["}',
    "odd-url": r'{"url": ["http://a.b/"]}',
}


def spoil(url: str, site: str) -> None:
    """Make items of tasks and of plain requests, and spoil some of them behind our own back."""
    good = {"url": site + "/page/good"}
    request = {**good, "request": {"callback": "page"}}
    with ItemGraph.open(url, "s") as graph:
        graph.apply(
            [
                CreateItem("good", tags=["page", "limited"], data=good),
                CreateItem("good-request", tags=["callback:page"], data=request),
                CreateItem("odd", tags=["page"], data={"url": site + "/page/odd"}),
                CreateItem("silent", tags=["page"], data={"url": site + "/page/silent"}),
                CreateItem(
                    "odd-redirect",
                    tags=["callback:page"],
                    data={**request, "url": site + "/redirect?to=/page/odd"},
                ),
                CreateItem("abyss-tag", tags={"page": 1, "limited": 1}, data=good),
                *(CreateItem(name, tags=["page"], data=good) for name in BAD_DATA),
                *(CreateItem("r-" + name, tags=["callback:page"], data=good) for name in BAD_DATA),
            ]
        )
    engine = engines.sync_engine(url)
    with engine.begin() as connection:
        for name, data in BAD_DATA.items():
            connection.execute(
                sa.text("UPDATE items SET data = CAST(:data AS json) WHERE name IN (:a, :b)"),
                {"data": data, "a": name, "b": "r-" + name},
            )
        connection.execute(
            sa.text(
                "UPDATE tags SET value = CAST(:value AS json) WHERE item_id = "
                "(SELECT id FROM items WHERE name = 'abyss-tag')"
            ),
            {"value": deep(5_000)},
        )
    engine.dispose()


def test_a_row_that_cannot_be_read_or_requested_fails_alone(project):
    """Data, tags, URLs, fingerprints and errors of every odd form are failures; the rest runs."""
    project.write(SPIDER, SETTINGS, odd=ODD)
    project.crawl()
    spoil(project.url, project.site_url)

    run = project.crawl()
    again = project.crawl()

    assert run.stats["reason"] == "finished", run.log
    assert again.stats["reason"] == "finished", again.log
    outcomes = project.outcomes()
    good = {name: outcomes.pop(name) for name in ("good", "good-request")}
    assert good == {"good": ["ok", "ok"], "good-request": ["ok"]}
    spoiled = {"odd", "silent", "odd-redirect", "abyss-tag", *BAD_DATA}
    spoiled |= {"r-" + name for name in BAD_DATA}
    assert set(outcomes) == spoiled
    assert {one for each in outcomes.values() for one in each} == {"failed"}, outcomes
    for name in ("abyss", "list"):
        assert project.scrapy("itemgraph", "show", name).code == 0
        assert project.scrapy("itemgraph", "delete", name).code == 0


def test_a_file_is_fetched_only_by_a_task_that_says_so(project, tmp_path):
    """An item's URL may come from a website: by default a task fetches http and https alone."""
    secret = tmp_path / "secret.html"
    secret.write_text("<h1>secret</h1>")
    project.write(
        """
    class S(scrapy.Spider):
        name = "s"

        def seeds(self):
            yield CreateItem("default", ["page"], {"url": os.environ["SECRET"]})
            yield CreateItem("upper", ["page"], {"url": os.environ["SECRET"].upper()})
            yield CreateItem("meant", ["file"], {"url": os.environ["SECRET"]})
            yield seed("web", tags=["page"])

        def from_disk(self, item):
            return scrapy.Request(item.data["url"])

        @task(tags=["page"])
        def t_page(self, response, item):
            yield UpdateData({"text": response.css("h1::text").get()})

        @task(tags=["file"], request="from_disk")
        def t_file(self, response, item):
            yield UpdateData({"text": response.css("h1::text").get()})
    """.replace('os.environ["SECRET"]', repr(secret.as_uri()))
    )

    run = project.crawl()

    outcomes = project.outcomes()
    assert {name: outcomes[name][-1] for name in outcomes} == {
        "default": "refused",
        "upper": "refused",
        "meant": "ok",
        "web": "ok",
    }, run.log
    assert project.data()["meant"]["text"] == "secret"
    assert "text" not in project.data()["default"]
    assert all("http and https only" in message for _, message in project.errors())


def test_a_callback_that_is_cancelled_has_not_succeeded(project):
    """What a callback awaits may be cancelled; that ends the callback, and its page has failed."""
    project.write("""
    class S(scrapy.Spider):
        name = "s"
        start_urls = [SITE + "/page/1"]

        def seeds(self):
            yield seed("A", "/page/a")

        async def parse(self, response):
            await self.cancelled()

        @task(tags=["page"])
        async def t_page(self, response, item):
            await self.cancelled()
            yield UpdateData({"n": 1})

        async def cancelled(self):
            waiting = asyncio.get_running_loop().create_future()
            waiting.cancel()
            await waiting
    """)

    process = project.start("crawl", "s")
    until(lambda: len(project.attempts()) == 2, project.log)
    kill(process)  # Scrapy itself waits for such a callback for ever

    assert project.outcomes() == {"A": ["failed"]}
    assert project.request_outcomes() == {"/page/1": ["failed"]}
