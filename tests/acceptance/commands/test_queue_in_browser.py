"""The queue in a real Chromium: a crawl is added, steered, and its job's log read as it comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support import cockpits, queued
from support.projects import until

from scrapy_itemgraph.web.crawl_terms import CrawlTerms

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest.importorskip("playwright", reason="playwright is not installed")
from playwright.sync_api import Browser, Page, expect

PATIENCE = 120_000  # milliseconds
# A crawl that goes on, and says so.
ENDLESS = """
class S(scrapy.Spider):
    name = "s"

    async def start(self):
        print("it begins", flush=True)
        for number in range(10**6):
            await asyncio.sleep(0.5)
            print("tick", number, "<b>", flush=True)
        yield

    def parse(self, response):
        pass
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start a browser for this file alone: its event loop would be in the way of others."""
    expect.set_options(timeout=PATIENCE)  # what moves is looked at less often on a busy machine
    with cockpits.chromium() as one:
        yield one
    expect.set_options(timeout=None)


@pytest.fixture
def page(browser, project) -> Iterator[Page]:
    """Serve a project's cockpit, and open a page; what went wrong in it fails the test."""
    terms = CrawlTerms(project="proj", list_spiders=["printf", "s\\n"])
    with cockpits.cockpit(project.url, crawl_terms=terms) as address:
        context = browser.new_context(base_url=address, viewport={"width": 1280, "height": 800})
        one = context.new_page()
        one.set_default_timeout(PATIENCE)
        complaints: list[str] = []
        one.on("pageerror", lambda error: complaints.append(str(error)))
        one.on("console", lambda said: complaints.append(said.text))
        yield one
        context.close()
    assert not [said for said in complaints if "status of 4" not in said]


def test_a_crawl_is_added_steered_and_its_log_read(page, project, site) -> None:
    """MNB-3: the form adds a crawl, it runs, its log grows; it is paused, resumed and aborted."""
    project.write(ENDLESS)
    runner = queued.work(project, "--name", "box")
    page.goto("/queue")
    page.get_by_role("link", name="Add a crawl").click()
    page.get_by_label("Spider").fill("t")
    page.get_by_label("Arguments").fill("category=<b>")
    page.get_by_role("button", name="Add to the queue").click()
    expect(page.get_by_role("alert").first).to_contain_text("the project has s")
    page.get_by_label("Spider").fill("s")
    page.get_by_label("Name").fill("first")
    page.get_by_role("button", name="Add to the queue").click()
    expect(page.get_by_role("status")).to_contain_text("first is in the queue")
    expect(page.get_by_text("category=<b>")).to_be_visible()

    page.goto("/queue")
    row = page.get_by_role("row", name="first")
    expect(row).to_contain_text("1 of 1")
    row.get_by_role("link", name="first").click()
    page.get_by_role("region", name="Processes").get_by_role("link").click()
    log = page.locator("#log")
    expect(log).to_contain_text("it begins")
    expect(log).to_contain_text("tick 3 <b>")
    page.get_by_role("link", name="first").click()

    page.get_by_text("Pause…").click()
    page.get_by_label("Why, for those who look").first.fill("the site is down")
    page.get_by_role("button", name="Pause it").click()
    expect(page.get_by_role("status")).to_contain_text("first is paused")
    expect(page.get_by_role("region", name="What happened")).to_contain_text("the site is down")
    until(lambda: not queued.running(project), project.log)
    expect(page.get_by_role("region", name="Jobs").last).to_contain_text("cancelled")
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("status")).to_contain_text("first goes on")
    queued.until_running(project, "first")
    page.get_by_text("Abort…").click()
    page.get_by_role("button", name="Abort it").click()
    expect(page.get_by_role("button", name="Revive")).to_be_visible()
    until(lambda: not queued.running(project), project.log)
    page.goto("/queue")
    expect(page.get_by_role("region", name="Aborted crawls")).to_contain_text("first")
    queued.end(project, runner)
