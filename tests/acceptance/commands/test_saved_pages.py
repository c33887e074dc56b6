"""`scrapy_itemgraph.testing`, as a user has it: a project with tests, in a pytest of its own."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import pytest
from support import servers
from support.projects import PACKAGE, Project

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLE = PACKAGE / "example_project"

# A server that is not there, and limits by which no second run of a task would ever start.
SETTINGS = """
ITEM_PIPELINES = {"proj.parts.Cents": 300}
SPIDER_MIDDLEWARES = {"proj.parts.NoBags": 500}
DOWNLOAD_DELAY = 3600
ITEMGRAPH_RATE_LIMIT = "1/h"
"""

PARTS = """
class Cents:
    def process_item(self, item):
        return {**item, "cents": 100 * int(item["price"])}


class NoBags:
    def process_spider_output(self, response, result):
        return (one for one in result if one != {"name": "a bag"})

    async def process_spider_output_async(self, response, result):
        async for one in result:
            if one != {"name": "a bag"}:
                yield one
"""

SPIDERS = """
class ShopSpider(scrapy.Spider):
    name = "s"
    start_urls = ["https://shop.example/"]
    currency = "EUR"

    def seeds(self):
        yield CreateItem("SEED", tags=["product"])

    @task(tags=["product"], ttl="1d", rate_limit="1/h", concurrency=1)
    def detail(self, response, item):
        item.log("info", "at the page")
        name = response.css("h1::text").get()
        yield UpdateData({"name": name, "currency": self.currency})
        yield RenameItem(to="SKU:1", if_taken="merge")
        yield CreateItem("BRAND:1", tags=["brand"], data={"url": response.urljoin("/brand")})
        yield {"name": name, "price": response.css(".price::text").get()}
        yield {"name": "a bag"}
        yield response.follow("/more", self.more, errback=self.failed)
        yield response.follow("/other", self.more, errback=self.failed)

    def more(self, response, item):
        yield UpdateData({"more": response.css("p::text").get()})

    def failed(self, failure):
        yield UpdateData({"failed": str(failure)})

    def reviews_request(self, item):
        meta = {"handle_httpstatus_list": [410]}
        return scrapy.Request(item.data["reviews"], meta=meta, headers={"X": "1"})

    @task(tags=["product"], request="reviews_request")
    async def reviews(self, response, item):
        if response.status == 410:
            yield AddTag("gone")
        else:
            sent = response.request.headers["X"].decode()
            yield UpdateMetadata({"url": response.url, "sent": sent, "meta": response.meta})

    @task(tags=["product"], depends_on=["detail", "reviews"], download=False)
    async def card(self, response, item):
        known = {
            "response": response,
            "reviews": await item.get_metadata("reviews"),
            "before": await item.get_metadata(),
            "wished": (await item.get_item("EAN:1")).data,
        }
        yield UpdateMetadata(known)
        yield MergeItem(id="EAN:1", into=item.id)

    @task(tags=["broken"])
    def breaks(self, response, item):
        yield UpdateData({"kept": True})
        if item.data.get("allow"):
            yield AllowFailure()
        raise ValueError("no price")

    @task(tags=["endless"])
    async def endless(self, response, item):
        await asyncio.sleep(3600)
        yield UpdateData({})

    async def token_request(self, item):
        if item.data.get("hangs"):
            await asyncio.sleep(3600)
        request = scrapy.Request("https://shop.example/token")
        answer = await self.crawler.engine.download_async(request)
        since = item.metadata.get("at", "never")
        return scrapy.Request(item.data["url"], headers={"Token": answer.text, "Since": since})

    @task(tags=["secret"], request="token_request")
    def secret(self, response, item):
        sent = response.request.headers
        yield UpdateData({name: sent[name].decode() for name in ("Token", "Since")})

    @task(tags=["inline"])
    async def inline(self, response, item):
        request = scrapy.Request("https://shop.example/inline")
        more = await self.crawler.engine.download_async(request)
        yield UpdateData({"inline": more.text})


class QuotesSpider(scrapy.Spider):
    name = "quotes"

    def parse(self, response, who=None):
        for text in response.css(".quote::text").getall():
            yield {"text": text, "who": who, "meta": response.meta["page"]}
        yield from response.follow_all(css="a", callback=self.parse_author)

    async def parse_author(self, response):
        asked = response.request
        yield {"name": response.css("h1::text").get(), "asked": (asked.method, asked.body.decode())}

    def one(self, response):
        return {"text": response.text}

    def breaks(self, response):
        yield {"text": "kept"}
        raise KeyError("author")

    def unstorable(self, response):
        yield scrapy.Request("https://quotes.example/x", callback=lambda response: None)
"""

TESTS = """
import asyncio
import unittest
from pathlib import Path

import pytest
import scrapy
from scrapy.http import HtmlResponse

from scrapy_itemgraph import (
    AddTag,
    AllowFailure,
    AttachBlob,
    CreateItem,
    ItemGraph,
    RenameItem,
    UpdateData,
)
from scrapy_itemgraph.exceptions import ItemGraphError
from scrapy_itemgraph.testing import run_callback, run_task

from proj.spiders.s import QuotesSpider, ShopSpider

PAGE = Path(__file__).parent / "pages" / "mug.html"
URL = "https://shop.example/mug"
QUOTES = "https://quotes.example/"


def test_what_a_task_yields_and_changes():
    ran = run_task(ShopSpider, "detail", page=PAGE, url=URL)

    assert ran.error is None
    assert ran.outcome == "ok"
    assert ran.operations == [
        UpdateData({"name": "Mug", "currency": "EUR"}),
        RenameItem(to="SKU:1", if_taken="merge"),
        CreateItem("BRAND:1", tags=["brand"], data={"url": "https://shop.example/brand"}),
    ]
    assert ran.items == [{"name": "Mug", "price": "12"}]
    assert [(line.category, line.message) for line in ran.log] == [("info", "at the page")]
    assert sorted(one.kind for one in ran.changes) == ["new", "renamed"]
    assert ran.item.id == "SKU:1"
    assert ran.item.data == {"url": URL, "name": "Mug", "currency": "EUR"}
    assert ran.item.results["detail"].state == "fresh"
    assert list(ran.item.work) == ["reviews"]
    assert ran.after("BRAND:1").data == {"url": "https://shop.example/brand"}
    assert ran.after("nobody") is None


def test_requests_without_a_page_are_listed():
    ran = run_task(ShopSpider, "detail", page=PAGE, url=URL)

    more, other = ran.requests
    assert (more.url, more.callback.__name__) == ("https://shop.example/more", "more")
    assert other.url == "https://shop.example/other"
    assert not {"more", "failed"} & ran.item.data.keys()


def test_requests_with_a_page_are_followed():
    pages = {"https://shop.example/more": b"<p>More</p>"}

    ran = run_task(ShopSpider, "detail", page=PAGE, url=URL, pages=pages)

    assert ran.operations[-1] == UpdateData({"more": "More"})
    assert ran.item.data["more"] == "More"


def test_arguments_settings_and_pipelines():
    ran = run_task(
        ShopSpider,
        "detail",
        page=PAGE.read_bytes(),
        url=URL,
        arguments={"currency": "CHF"},
        settings={"ITEMGRAPH_KEEP_LOGS": 0},
        pipelines=True,
    )

    assert ran.item.data["currency"] == "CHF"
    assert ran.items == [{"name": "Mug", "price": "12", "cents": 1200}]
    assert ran.error is None


@pytest.mark.parametrize(
    ("status", "outcome"), [(200, "ok"), (404, "failed"), (503, "retry"), (302, "refused")]
)
def test_the_request_of_a_task_and_the_status_of_its_page(status, outcome):
    item = CreateItem("A", data={"reviews": "https://shop.example/r"})
    page = HtmlResponse("https://shop.example/r", status=status, headers={"Location": "/s"})

    ran = run_task(ShopSpider, "reviews", page=page, item=item)

    assert ran.outcome == outcome
    if outcome == "ok":
        known = ran.item.results["reviews"].metadata
        assert (known["url"], known["sent"]) == ("https://shop.example/r", "1")
        assert not [name for name in known["meta"] if "itemgraph" in name]


def test_a_redirect_to_a_saved_page_is_followed():
    item = CreateItem("A", data={"reviews": "https://shop.example/r"})
    page = HtmlResponse("https://shop.example/r", status=302, headers={"Location": "/s"})
    gone = HtmlResponse("https://shop.example/s", status=410)

    ran = run_task(
        ShopSpider, "reviews", page=page, item=item, pages={"https://shop.example/s": gone}
    )

    assert ran.operations == [AddTag("gone")]
    assert ran.item.tags == {"product": None, "gone": None}


def test_results_and_other_items_are_given():
    ran = run_task(
        ShopSpider,
        "card",
        item=CreateItem("A", data={"ours": 1}),
        metadata={"reviews": {"stars": 5}, "card": {"n": 1}},
        given=[CreateItem("EAN:1", tags=["wanted"], data={"by": "Ada"})],
    )

    assert ran.error is None
    assert ran.item.results["card"].metadata == {
        "n": 1,
        "response": None,
        "reviews": {"stars": 5},
        "before": {"n": 1},
        "wished": {"by": "Ada"},
    }
    assert ran.item.data == {"ours": 1, "by": "Ada"}


def test_what_fails_keeps_nothing_unless_it_is_allowed():
    dropped = run_task(ShopSpider, "breaks", page=b"", url=URL)
    kept = run_task(
        ShopSpider, "breaks", page=b"", item=CreateItem("A", data={"url": URL, "allow": 1})
    )

    assert (dropped.outcome, dropped.error.type, dropped.error.message) == (
        "failed",
        "ValueError",
        "no price",
    )
    assert "breaks" in dropped.error.traceback
    assert dropped.operations == [UpdateData({"kept": True})]
    assert dropped.item.data == {"url": URL}
    assert dropped.item.results["breaks"].state == "held"
    assert kept.operations == [UpdateData({"kept": True}), AllowFailure()]
    assert kept.item.data["kept"] is True


def test_what_does_not_end_is_stopped_and_the_next_one_runs():
    with pytest.raises(ItemGraphError, match="did not end within 1 seconds"):
        run_task(ShopSpider, "endless", page=b"", url=URL, timeout=1)

    assert run_task(ShopSpider, "detail", page=PAGE, url=URL).outcome == "ok"


@pytest.mark.parametrize(("known", "since"), [({}, "never"), ({"secret": {"at": "1"}}, "1")])
def test_a_request_method_that_awaits_a_page_and_sees_its_metadata(known, since):
    pages = {"https://shop.example/token": HtmlResponse("https://shop.example/token", body=b"T")}

    ran = run_task(ShopSpider, "secret", page=PAGE, url=URL, metadata=known, pages=pages)

    assert ran.error is None
    assert (ran.item.data["Token"], ran.item.data["Since"]) == ("T", since)


def test_a_request_method_that_does_not_end_is_stopped():
    item = CreateItem("A", data={"url": URL, "hangs": True})
    with pytest.raises(ItemGraphError, match="did not end within 0.5 seconds"):
        run_task(ShopSpider, "secret", page=PAGE, item=item, timeout=0.5)


def test_pages_that_a_callback_awaits():
    pages = {"https://shop.example/inline": b"more"}

    found = run_task(ShopSpider, "inline", page=b"", url=URL, pages=pages)
    missing = run_task(ShopSpider, "inline", page=b"", url=URL)

    assert found.item.data["inline"] == "more"
    assert "pages={'https://shop.example/inline': …}" in missing.error.message


def test_a_plain_callback_yields_items_and_requests():
    page = b"<html><b class=quote>Hi</b><a href=/ada>"

    ran = run_callback(
        QuotesSpider, "parse", page=page, url=QUOTES, meta={"page": 3}, cb_kwargs={"who": "me"}
    )

    assert ran.error is None
    assert ran.items == [{"text": "Hi", "who": "me", "meta": 3}]
    (request,) = ran.requests
    assert request.url == "https://quotes.example/ada"
    assert request.callback.__name__ == "parse_author"
    assert ran.operations == []
    (new,) = [one.after for one in ran.changes if one.kind == "new"]
    assert new.data["url"] == "https://quotes.example/ada"
    assert list(new.work) == ["parse_author"]
    assert ran.item.results["parse"].state == "fresh"


def test_a_plain_callback_gets_the_whole_request():
    request = scrapy.Request(QUOTES, method="POST", body="a=1")

    ran = run_callback(QuotesSpider, "parse_author", page=b"<h1>Ada</h1>", request=request)

    assert ran.items == [{"name": "Ada", "asked": ("POST", "a=1")}]


def test_plain_callbacks_that_return_fail_or_yield_what_cannot_be_stored():
    returned = run_callback(QuotesSpider, "one", page=b"{}", url="https://quotes.example/a.json")
    failed = run_callback(QuotesSpider, "breaks", page=b"", url=QUOTES)
    carried = run_callback(QuotesSpider, "unstorable", page=b"", url=QUOTES)

    assert returned.items == [{"text": "{}"}]
    assert (failed.outcome, failed.error.type, failed.items) == (
        "failed",
        "KeyError",
        [{"text": "kept"}],
    )
    assert carried.outcome == "ok"
    assert [one.url for one in carried.requests] == ["https://quotes.example/x"]


MISTAKES = [
    (run_task, ShopSpider, "detial", {"page": PAGE, "url": URL}, "did you mean 'detail'"),
    (run_task, QuotesSpider, "parse", {"page": PAGE, "url": URL}, "run_callback"),
    (run_task, ShopSpider, "detail", {"url": URL}, "page=…"),
    (run_task, ShopSpider, "card", {"page": PAGE}, "leave page= out"),
    (run_task, ShopSpider, "detail", {"page": "no.html", "url": URL}, "scrapy fetch"),
    (run_task, ShopSpider, "detail", {"page": PAGE, "pages": {URL: "no.html"}}, "scrapy fetch"),
    (run_task, ShopSpider, "detail", {"page": PAGE}, "url=…"),
    (run_task, ShopSpider, "detail", {"page": PAGE, "item": CreateItem("A", ["brand"])}, "no tag"),
    (run_task, ShopSpider, "card", {"metadata": {"revews": {}}}, "revews"),
    (run_task, ShopSpider, "card", {"given": [AttachBlob("a", b"a")]}, "AttachBlob"),
    (run_task, ShopSpider, "card", {"given": [CreateItem("ITEM"), UpdateData({}, id="B")]}, "'B'"),
    (run_task, ShopSpider, "card", {"settings": {"ITEMGRAPH_ENABLED": False}}, "ADDONS"),
    (run_callback, QuotesSpider, "prase", {"page": PAGE, "url": URL}, "did you mean 'parse'"),
    (run_callback, QuotesSpider, "parse", {"page": PAGE}, "url=…"),
    (run_callback, QuotesSpider, "parse", {"page": PAGE, "url": URL, "request": 1}, "not both"),
    (run_callback, ShopSpider, "detail", {"page": PAGE, "url": URL}, "run_task"),
    (
        run_callback,
        QuotesSpider,
        "parse",
        {"page": PAGE, "url": URL, "cb_kwargs": {"who": lambda: 1}},
        "who",
    ),
]


@pytest.mark.parametrize(("run", "spider", "name", "given", "said"), MISTAKES)
def test_a_mistake_says_what_to_do(run, spider, name, given, said):
    with pytest.raises(ItemGraphError) as found:
        run(spider, name, **given)

    assert said in str(found.value)


def test_it_runs_inside_an_event_loop():
    async def inside():
        return run_callback(QuotesSpider, "one", page=b"a", url=QUOTES)

    assert asyncio.run(inside()).items == [{"text": "a"}]


class TestCase(unittest.TestCase):
    def test_it_runs_in_unittest(self):
        ran = run_callback(QuotesSpider, "one", page=b"a", url=QUOTES)

        self.assertEqual(ran.items, [{"text": "a"}])


def test_z_nothing_stays_in_the_database():
    with ItemGraph.open(data_dir=".scrapy/itemgraph-testing") as graph:
        assert graph.crawls.names() == []
"""

BESIDE_TWISTED = """
import asyncio

import pytest_twisted
from twisted.internet.defer import Deferred

from scrapy_itemgraph.testing import run_callback

from proj.spiders.s import QuotesSpider


def run():
    return run_callback(QuotesSpider, "one", page=b"a", url="https://quotes.example/")


def test_here():
    run()


@pytest_twisted.ensureDeferred
async def test_in_a_thread():
    ran = await Deferred.fromFuture(asyncio.ensure_future(asyncio.to_thread(run)))

    assert ran.items == [{"text": "a"}]
"""


@pytest.fixture(scope="module")
def user() -> Iterator[Project]:
    """Yield a project with tests, whose own database does not answer."""
    with servers.open_directory() as directory:
        project = Project(directory, "postgresql://nobody@127.0.0.1:1/nowhere")
        project.write(SPIDERS, SETTINGS, parts=PARTS)
        tests = directory / "tests"
        (tests / "pages").mkdir(parents=True)
        (tests / "pages" / "mug.html").write_text('<h1>Mug</h1><i class="price">12</i>')
        (tests / "test_shop.py").write_text(TESTS)
        (tests / "test_beside_twisted.py").write_text(BESIDE_TWISTED)
        yield project


@pytest.fixture(scope="module")
def tested(user) -> tuple[dict[str, set[str]], str]:
    """Run the user's tests once; return what became of each by its name, and what pytest said."""
    process = user.start_python(
        "-m", "pytest", "-v", "-p", "no:twisted", "tests/test_shop.py", PYTHONPATH="."
    )
    output = user.finish(process, 300).output
    found: dict[str, set[str]] = {}
    for name, outcome in re.findall(r"::(test_\w+)\S* (PASSED|FAILED|ERROR)", output):
        found.setdefault(name, set()).add(outcome)
    return found, output


@pytest.mark.edge
@pytest.mark.parametrize("name", re.findall(r"def (test_\w+)", TESTS))
def test_a_project_tests_its_spiders(tested, name):
    """Each test of the project passes, in one process, without a server or a website."""
    outcomes, output = tested
    assert outcomes.get(name) == {"PASSED"}, output


def test_the_example_project_has_tests(user, tmp_path):
    """The tests of the example shop pass, as its README has them run."""
    example = tmp_path / "example"
    shutil.copytree(EXAMPLE, example, ignore=shutil.ignore_patterns(".scrapy", "__pycache__"))
    (example / ".scrapy").symlink_to(user.directory / ".scrapy")  # its server is there already
    project = Project(example, "")

    run = project.finish(project.start_python("-m", "pytest"))

    assert run.code == 0, run.output
    assert " passed" in run.output


def test_beside_a_reactor_it_runs_in_a_thread(user):
    """Where pytest-twisted runs the reactor, a run elsewhere uses it, and one here says how."""
    process = user.start_python(
        "-m",
        "pytest",
        "--reactor=asyncio",
        "tests/test_beside_twisted.py",
        PYTHONPATH=".",
    )
    output = user.finish(process).output

    assert "1 failed, 1 passed" in output
    assert "FAILED tests/test_beside_twisted.py::test_here" in output
    assert "await asyncio.to_thread(run_task, …)" in output
