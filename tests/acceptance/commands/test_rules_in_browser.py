"""Rules in a real Chromium: a trap is seen, tried, and taken out of a crawl and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support import cockpits

from scrapy_itemgraph import CreateItem
from scrapy_itemgraph.graph import ItemGraph

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest.importorskip("playwright", reason="playwright is not installed")
from playwright.sync_api import Browser, expect

PATIENCE = 120_000  # milliseconds


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start a browser for this file alone: its event loop would be in the way of others."""
    expect.set_options(timeout=PATIENCE)
    with cockpits.chromium() as one:
        yield one
    expect.set_options(timeout=None)


def test_a_trap_is_tried_and_set_aside_by_buttons(browser, database) -> None:
    """MNB-11: the tester says which rule decides, and what a rule would change is counted first."""
    with ItemGraph.open(database, "museum") as graph:
        urls = [f"https://museum.example/calendar/{day}" for day in range(5)]
        graph.apply([CreateItem(url, data={"url": url}) for url in urls])
    with cockpits.cockpit(database) as address:
        context = browser.new_context(base_url=address, viewport={"width": 390, "height": 800})
        page = context.new_page()
        page.goto("/crawls/museum/overview")
        page.get_by_role("link", name="Rules").click()
        expect(page.get_by_text("No rules yet")).to_be_visible()
        page.get_by_label("Pattern").fill("/(?=calendar)")
        page.get_by_label("At their turn").select_option("are skipped")
        page.get_by_role("button", name="Add it").click()
        expect(page.get_by_role("status")).to_contain_text("RE2 has no lookaround")
        page.get_by_label("Pattern").fill("/calendar/")
        page.get_by_label("Links to pages").select_option("are refused")
        page.get_by_label("At their turn").select_option("are skipped")
        page.get_by_label("Why").fill("it has no end")
        page.get_by_role("button", name="Add it").click()
        expect(page.get_by_role("status")).to_contain_text("Ruleset 1 is in force")
        page.get_by_role("textbox", name="URL", exact=True).fill(urls[0])
        page.get_by_role("button", name="Try it").click()
        expect(page.get_by_text("by rule 1").first).to_be_visible()
        page.get_by_role("link", name="Count what they would change").click()
        expect(page.get_by_text("would be skipped").first).to_be_visible()
        page.get_by_role("button", name="Apply them to what waits").click()
        expect(page.get_by_role("status")).to_contain_text("are applied to what waits")
        page.get_by_role("region", name="Rules").locator("summary").click()
        page.get_by_role("button", name="Remove").click()
        expect(page.get_by_role("status")).to_contain_text("Removed rule 1")
        page.get_by_text("Earlier rulesets").click()
        expect(page.get_by_text("it has no end")).to_be_visible()
        context.close()
