"""The cockpit in a real Chromium, on what the example's spider crawled of its shop."""

from __future__ import annotations

import re
import tempfile
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from conftest import new_database
from support import cockpits, filled_queue
from support.proxies import proxy

from scrapy_itemgraph import AttachBlob, CreateItem, ItemGraph
from scrapy_itemgraph.model.work import ErrorRecord
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.store import failures
from scrapy_itemgraph.store import items as stored_items
from scrapy_itemgraph.store.worklist import refresh
from scrapy_itemgraph.web.pages import crawls, item_lists, live

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest.importorskip("playwright", reason="playwright is not installed")
from playwright.sync_api import Browser, Page, expect

TABS = (
    *("Overview", "Worklist", "Failures", "Items", "Tasks", "Rules", "Slots", "Workers"),
    "Search",
)
PATIENCE = 120_000  # milliseconds; what moves is looked at less often on a busy machine
BROKEN = "harbour-beans-500-g"  # whose price is a sentence on the first day
EVIL = """<script>window.owned=1</script><img src=x onerror="window.owned=1">"'"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start a browser for this file alone: its event loop would be in the way of others."""
    expect.set_options(timeout=PATIENCE)
    with cockpits.chromium() as one:
        yield one
    expect.set_options(timeout=None)


@pytest.fixture(scope="module")
def crawled(server_url, template) -> Iterator[tuple[str, str]]:
    """Crawl the shop's first day once; yield the database and the shop's address."""
    with (
        new_database(server_url, template) as url,
        cockpits.shop_site() as site,
        tempfile.TemporaryDirectory() as folder,
    ):
        cockpits.crawl_shop(url, site, Path(folder) / "day-1.log")
        yield url, site


@pytest.fixture
def shop(server_url, crawled) -> Iterator[str]:
    """Yield a copy of the crawled database, to be changed."""
    with new_database(server_url, crawled[0]) as url:
        yield url


@pytest.fixture
def address(shop) -> Iterator[str]:
    """Serve the cockpit of the copy."""
    with cockpits.cockpit(shop) as one:
        yield one


@pytest.fixture
def page(browser, address) -> Iterator[Page]:
    """Open a page of a new browser session; what went wrong in it fails the test."""
    context = browser.new_context(base_url=address, viewport={"width": 1280, "height": 800})
    context.set_default_timeout(PATIENCE)
    one = context.new_page()
    complaints: list[str] = []
    one.on("pageerror", lambda error: complaints.append(str(error)))
    one.on(
        "console",
        lambda said: complaints.append(said.text) if "Content Security" in said.text else None,
    )
    yield one
    context.close()
    assert not complaints


def hold(url, names, failure, error) -> None:
    """Let a task of items fail as a worker would record it."""
    engine = engines.sync_engine(url)
    with engine.begin() as connection:
        ids = [stored_items.resolve(connection, 1, name) for name in names]
        record = ErrorRecord.read(error)
        failed = [
            failures.Failed(item_id=one, task_id=failure.task_id, version="1", error=record)
            for one in ids
        ]
        failures.record(connection, failed)
        refresh.refresh(connection, ids)
    engine.dispose()


def test_each_page_is_a_click_away(page) -> None:
    """From the list of crawls every page of a crawl is reached by its tab, and says its name."""
    page.goto("/")
    page.get_by_role("link", name="shop").click()
    for tab in TABS:
        page.get_by_role("navigation").get_by_role("link", name=tab).click()

        expect(page.locator("h1")).to_be_visible()
        expect(page.locator("nav a[aria-current]")).to_contain_text(tab)
        assert page.title().startswith(tab)


def test_an_address_that_leads_nowhere_is_a_page(page) -> None:
    """Pages, crawls and items that are not there are said in words, with a way back."""
    for path in ("/nope", "/crawls/nope/tasks", "/crawls/shop/item?id=nope", "/crawls/shop/item"):
        page.goto(path)
        expect(page.locator("h1")).to_have_text(re.compile("Not Found|Bad Request"))
        expect(page.get_by_role("link", name="All crawls")).to_be_visible()


def test_keys_lead_to_pages_and_to_the_search(page) -> None:
    """`g f` opens the failures, `/` the search, `?` the list of keys, Escape leaves them."""
    page.goto("/crawls/shop/overview")
    page.keyboard.press("g")
    page.keyboard.press("f")
    page.wait_for_url("**/failures")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.keyboard.press("/")
    page.keyboard.type("EAN:4012345010015")
    page.keyboard.press("Enter")

    expect(page.locator("h1")).to_have_text("SKU:T1001")


def test_an_item_shows_what_is_known_of_it(page) -> None:
    """Data, names, where it comes from, results and attempts of an item stand on its page."""
    page.goto("/crawls/shop/item?id=SKU:T1001")

    expect(page.get_by_text("Green tea, 100 g")).to_be_visible()
    expect(page.locator("dd", has_text="EAN:4012345010015")).to_be_visible()
    expect(page.get_by_role("link", name="CATEGORY:tea").first).to_be_visible()
    expect(page.locator("details.result")).to_have_count(4)
    expect(page.get_by_role("row", name="parse_product")).to_contain_text("ok")


def test_columns_of_items_are_chosen_and_stay(page, monkeypatch) -> None:
    """Columns that are ticked stand in the address, and stay from page to page of the list."""
    monkeypatch.setattr(item_lists, "_SHOWN", 20)
    page.goto("/crawls/shop/items?column=name")
    page.get_by_text("Columns").click()
    page.get_by_role("checkbox", name="price").check()
    page.get_by_role("button", name="Show").click()
    expect(page.locator("th.data")).to_have_text(["name", "price"])
    expect(page.locator("tbody tr")).to_have_count(20)
    first = page.locator("tbody th").first.inner_text()
    page.get_by_role("link", name="Further items").click()
    expect(page.locator("tbody th").first).not_to_have_text(first)
    expect(page.locator("th.data")).to_have_text(["name", "price"])

    page.get_by_label("Tag").fill("product")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_label("Tag")).to_have_value("product")
    expect(page.locator("tbody tr", has=page.get_by_text("product"))).to_have_count(20)
    page.get_by_role("link", name="What was done last").click()
    expect(page.get_by_role("columnheader", name="items scraped")).to_be_visible()


def test_a_failure_is_understood_handled_and_seen_to_succeed(page, shop, crawled, tmp_path) -> None:
    """The failure's traceback says what is wrong; once handled, the next run succeeds."""
    page.goto("/crawls/shop/failures")
    group = page.locator("article")
    expect(group).to_have_count(1)
    expect(group).to_contain_text("ValueError")
    expect(group.get_by_label("Traceback")).to_contain_text("removeprefix")
    group.get_by_text("The page that it saw").click()
    expect(group.get_by_label("Snippet of the response")).to_contain_text("ask us")
    expect(group.get_by_role("link", name="Simulate")).to_be_visible()
    group.get_by_role("button", name="run again").click()
    expect(page.get_by_role("status")).to_contain_text("1 failure is handled")
    expect(page.get_by_role("status")).to_contain_text("Next: scrapy crawl shop")
    expect(page.get_by_text("No open failure")).to_be_visible()
    page.goto("/crawls/shop/worklist")
    expect(page.locator("tbody th")).to_contain_text(BROKEN)
    urllib.request.urlopen(urllib.request.Request(f"{crawled[1]}/day/2", method="POST")).close()
    cockpits.crawl_shop(shop, crawled[1], tmp_path / "day-2.log")

    page.goto("/crawls/shop/search?q=" + quote(f"URL:{crawled[1]}/product/{BROKEN}"))

    expect(page.locator("h1")).to_have_text("SKU:T1016")
    expect(page.get_by_role("row", name="parse_product").first).to_contain_text("ok")


def test_handling_is_undone_as_long_as_nothing_ran(page) -> None:
    """The button beside the message opens the failure again."""
    page.goto("/crawls/shop/failures")
    page.get_by_role("button", name="run again").click()
    expect(page.get_by_text("No open failure")).to_be_visible()
    page.get_by_role("button", name="Undo").click()

    expect(page.get_by_role("status")).to_contain_text("1 failure is open again")
    expect(page.locator("article")).to_have_count(1)


def test_failures_of_a_group_are_handled_one_by_one(page, shop) -> None:
    """What is alike is one group; one of it is handled without closing what is open."""
    with ItemGraph.open(shop, "shop") as graph:
        (failure,) = graph.failures.list()
        error = {**failure.error, "message": "could not convert string to float: ' ask you'"}
        others = [CreateItem(id=f"X:{n}", tags=["product"], data={"url": "x:"}) for n in range(3)]
        graph.apply(others)
    hold(shop, [f"X:{n}" for n in range(3)], failure, error)
    page.goto("/crawls/shop/failures")
    group = page.locator("article", has_text="3 times")
    group.get_by_text("one by one").click()
    listed = group.locator("table.members tbody tr")
    expect(listed).to_have_count(3)
    listed.first.get_by_role("button", name="Handle").click()

    expect(listed).to_have_count(2)
    expect(page.get_by_role("status")).to_contain_text("1 failure is handled")
    with ItemGraph.open(shop, "shop") as graph:
        assert len(graph.failures.list()) == 3

    page.get_by_role("link", name="One by one").click()
    page.get_by_label("Text").fill("ask you")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("tbody tr")).to_have_count(2)
    page.get_by_label("all that are shown").check()
    page.get_by_role("button", name="Handle these").click()

    expect(page.get_by_role("status")).to_contain_text("2 failures are handled")
    page.get_by_role("link", name="All", exact=True).click()
    page.locator("tbody th a").click()
    expect(page.get_by_label("Traceback")).to_contain_text("removeprefix")


def test_two_people_handle_the_same_failure(page, address, browser) -> None:
    """Whoever comes second is told that somebody was faster, and nothing is handled twice."""
    page.goto("/crawls/shop/failures")
    other = browser.new_context(base_url=address).new_page()
    other.goto("/crawls/shop/failures")
    page.get_by_role("button", name="run again").click()
    expect(page.get_by_role("status")).to_contain_text("handled")
    other.get_by_role("button", name="run again").click()

    expect(other.get_by_role("status")).to_contain_text("somebody was faster")
    other.context.close()


def test_a_task_is_disabled_and_enabled(page, shop) -> None:
    """The buttons of a task do what they say, and the page says so."""
    page.goto("/crawls/shop/tasks")
    row = page.locator("tbody tr", has_text="parse_reviews").filter(has_text="3d")
    row.get_by_role("button", name="Disable").click()
    expect(page.get_by_role("status")).to_contain_text(["fetch_photo", "is", "disabled"][1])
    with ItemGraph.open(shop, "shop") as graph:
        assert sum(not task.is_enabled for task in graph.tasks.list()) == 1
    page.get_by_role("button", name="Enable").click()

    expect(page.get_by_role("status")).to_contain_text("enabled")


def test_work_is_explained_and_expired(page) -> None:
    """An opened row says why it runs; an expired result is outstanding work."""
    page.goto("/crawls/shop/worklist")
    expect(page.get_by_text("Nothing is outstanding")).to_be_visible()
    page.goto("/crawls/shop/item?id=SKU:T1001")
    result = page.locator("details.result", has=page.locator("summary", has_text="parse_product"))
    result.get_by_role("button", name="Expire").click()
    expect(page.get_by_role("status")).to_contain_text("is expired")
    page.goto("/crawls/shop/worklist?task=parse_product")
    page.get_by_text("explain, change").click()

    expect(page.locator("ul.reasons")).to_contain_text("it was expired by hand")


def test_work_is_filtered_and_its_turn_is_set(page, shop) -> None:
    """Work is shown by task, slot and state, in links that can be shared; nice moves its turn."""
    with ItemGraph.open(shop, "shop") as graph:
        urls = {"A": "https://a.example/", "B": "https://b.example/"}
        graph.apply(
            [CreateItem(id=name, tags=["product"], data={"url": url}) for name, url in urls.items()]
        )
    page.goto("/crawls/shop/worklist")
    expect(page.locator("tbody th")).to_have_text([re.compile(r"^\s*A\b"), re.compile(r"^\s*B\b")])
    page.get_by_label("Slot").fill("b.example")
    page.get_by_label("Task").select_option("parse_product")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("tbody th")).to_have_text([re.compile(r"^\s*B\b")])
    assert "slot=b.example" in page.url
    page.get_by_text("explain, change").click()
    page.get_by_label("nice").fill("-5")
    page.get_by_role("button", name="Set").click()
    expect(page.get_by_role("status")).to_contain_text("B has nice -5")
    page.get_by_role("link", name="All").click()
    expect(page.locator("tbody th")).to_have_text([re.compile(r"^\s*B\b"), re.compile(r"^\s*A\b")])
    page.get_by_label("State").select_option("held")
    page.get_by_role("button", name="Show").click()

    expect(page.locator("tbody th")).to_contain_text(BROKEN)


def test_an_item_leads_to_what_made_it_and_to_what_it_made(page) -> None:
    """One walks from a product to its category, which lists it, and on to the shop."""
    page.goto("/crawls/shop/item?id=SKU:T1001")
    page.locator(".neighbours a", has_text="CATEGORY:tea").click()
    expect(page.locator("h1")).to_have_text("CATEGORY:tea")
    expect(page.locator(".neighbours a", has_text="SKU:T1001")).to_have_count(1)
    page.locator(".neighbours a", has_text="SHOP:tea").click()

    expect(page.locator("h1")).to_have_text("SHOP:tea")


def test_an_item_shows_what_each_of_its_tasks_needs(page) -> None:
    """With the state of each task that is needed."""
    page.goto("/crawls/shop/item?id=SKU:T1001")
    card = page.locator("details.result", has=page.locator("summary", has_text="make_card"))

    expect(card.locator("dt", has_text="needs")).to_have_count(1)
    expect(card.locator("dd", has_text="parse_product")).to_contain_text("fresh")


def test_items_are_searched_by_part_and_by_path(page) -> None:
    """Part of a name finds items, and so does a path in their data; a wrong one is refused."""
    page.goto("/crawls/shop/search")
    page.get_by_label("What").fill("T102")
    page.get_by_label("How").select_option("part")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("main li")).to_have_count(10)
    page.get_by_label("What").fill("$.price ? (@ > 11)")
    page.get_by_label("How").select_option("path")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("main li").first).to_contain_text("SKU:")
    page.get_by_label("What").fill("$$$")
    page.get_by_role("button", name="Search").click()

    expect(page.get_by_text("this is no JSON path")).to_be_visible()


def test_an_item_is_deleted_after_a_question(page, shop) -> None:
    """Deleting asks first; then the item is gone."""
    page.goto("/crawls/shop/item?id=SKU:T1001")
    page.get_by_text("Delete…").click()
    page.get_by_role("button", name="Delete it").click()

    expect(page.get_by_role("status")).to_contain_text("SKU:T1001 is deleted")
    with ItemGraph.open(shop, "shop") as graph:
        assert graph.get("SKU:T1001") is None


def test_a_slot_is_blocked_and_set(page, shop) -> None:
    """A slot is blocked, freed and given a delay; what cannot be is refused in words."""
    with ItemGraph.open(shop, "shop") as graph:
        graph.apply([CreateItem(id="A", tags=["product"], data={"url": "https://a.example/"})])
    page.goto("/crawls/shop/slots")
    slot = page.locator("article", has=page.get_by_role("heading", name="a.example"))
    slot.get_by_text("change", exact=True).click()
    slot.get_by_role("button", name="Block").click()
    expect(page.get_by_role("status")).to_contain_text("is blocked for 1h")
    slot.get_by_text("change", exact=True).click()
    slot.get_by_role("button", name="Unblock").click()
    expect(page.get_by_role("status")).to_contain_text("is not blocked any more")
    slot.get_by_text("change", exact=True).click()
    slot.get_by_label("delay in seconds").fill("-1")
    slot.get_by_role("button", name="Set").first.click()

    expect(page.get_by_role("status")).to_contain_text("✕")
    with ItemGraph.open(shop, "shop") as graph:
        assert all(one.set_gap is None for one in graph.limits.list())


def test_nothing_that_a_website_sent_runs(page, shop) -> None:
    """HTML, script URLs, terminal escapes and turned text are shown as text, on every page."""
    name = f"EVIL:{EVIL}"
    data = {
        "url": "javascript:window.owned=1",
        "page": "https://example.org/?a=1&b=<b>",
        EVIL: [EVIL],
        "turned": "abc\u202edef",
        "escape": "\x1b[31mred",
        "long": "x" * 1_000_000,
    }
    with ItemGraph.open(shop, "shop") as graph:
        tags = {"product": EVIL, EVIL: EVIL}
        graph.apply([CreateItem(id=name, tags=tags, data=data, aliases=["javascript:1", EVIL])])
    for path in ("worklist", "search?q=" + quote(EVIL), "item?id=" + quote(name), "overview"):
        page.goto(f"/crawls/shop/{path}")

        assert page.evaluate("window.owned") is None
        hrefs = page.eval_on_selector_all(
            "a[href]", "all => all.map(a => new URL(a.href.baseVal ?? a.href, location).protocol)"
        )
        assert set(hrefs) <= {"http:", "https:"}
    page.goto("/crawls/shop/item?id=" + quote(name))
    expect(page.locator("h1")).to_contain_text("<script>")
    expect(page.get_by_text(r"abc\u202edef")).to_be_visible()
    link = page.get_by_role("link", name="https://example.org/?a=1&b=<b>")
    assert "noreferrer" in link.get_attribute("rel")
    assert len(page.content()) < 200_000


@pytest.mark.parametrize("name", ["URL:https://a.example/ü/%2F?x=1#y/😀", "😀" * 2048, "a b+c&d=e"])
def test_every_name_has_its_page(page, shop, name) -> None:
    """Names with slashes, signs and 8 kB of them are found by their link and by the search."""
    with ItemGraph.open(shop, "shop") as graph:
        graph.apply([CreateItem(id=name, tags=["product"], data={"url": "https://a.example/"})])
    page.goto("/crawls/shop/worklist")
    page.locator("tbody th a").first.click()

    expect(page.get_by_text("https://a.example/").first).to_be_visible()
    assert page.locator("h1").get_attribute("title")[:100] == name[:100]


def test_numbers_move_without_a_reload(page, shop) -> None:
    """What is committed shows on an open overview by itself."""
    page.goto("/crawls/shop/overview")
    items = page.locator("[data-number=items]")
    before = items.inner_text()
    with ItemGraph.open(shop, "shop") as graph:
        graph.apply([CreateItem(id="ONE MORE")])

    expect(items).to_have_text(str(int(before) + 1))


def test_what_is_read_stays_as_it_is(page, shop) -> None:
    """A new failure is told on the open list, which changes only when it is asked to."""
    page.goto("/crawls/shop/failures")
    expect(page.locator("[data-part-live=failures-badge]")).to_have_text("1")
    with ItemGraph.open(shop, "shop") as graph:
        (failure,) = graph.failures.list()
        graph.apply([CreateItem(id="X", tags=["product"], data={"url": "x:"})])
    hold(shop, ["X"], failure, {**failure.error, "type": "KeyError"})
    expect(page.get_by_text("There is something new")).to_be_visible()
    expect(page.locator("article")).to_have_count(1)
    page.get_by_role("link", name="Show it").click()

    expect(page.locator("article")).to_have_count(2)


def test_what_one_did_oneself_is_no_news(page, shop) -> None:
    """Handling one of two groups shows the other, and does not say that something is new.

    Neither does an older look of the server at the crawl, which other tabs caused.
    """
    with ItemGraph.open(shop, "shop") as graph:
        (failure,) = graph.failures.list()
        graph.apply([CreateItem(id="X", tags=["product"], data={"url": "x:"})])
    hold(shop, ["X"], failure, {**failure.error, "type": "KeyError"})
    badge = page.locator("[data-part-live=failures-badge]")
    page.goto("/crawls/shop/failures")
    expect(badge).to_have_text("2")
    group = page.locator("article", has_text="KeyError")
    group.get_by_role("button", name="run again").click()
    expect(page.locator("article")).to_have_count(1)

    expect(badge).to_have_text("1")
    expect(page.get_by_text("There is something new")).to_be_hidden()


def test_long_names_of_neighbours_fit_on_a_phone(page, shop) -> None:
    """An item that made items with long names is not wider than 390 pixels."""
    names = [f"REQ:{'abcdef0123456789' * 3}{n}" for n in range(9)]
    with ItemGraph.open(shop, "shop") as graph:
        graph.apply([CreateItem(id=name) for name in names])
        engine = engines.sync_engine(shop)
        with engine.begin() as connection:
            connection.exec_driver_sql(
                "UPDATE items SET created_by = 'SKU:T1001' WHERE name LIKE 'REQ:%%'"
            )
        engine.dispose()
    page.set_viewport_size({"width": 390, "height": 800})
    for name in ("SKU:T1001", names[0]):
        page.goto(f"/crawls/shop/item?id={name}")
        expect(page.locator(".neighbours")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_phone_shows_every_page_without_scrolling_sideways(page) -> None:
    """At 390 pixels neither a page nor a table in it is wider than the screen; all is opened."""
    page.set_viewport_size({"width": 390, "height": 800})
    paths = [tab.lower() for tab in TABS]
    for path in (*paths, "runs", "done", "item?id=SKU:T1001", "explain?id=SKU:T1001"):
        page.goto(f"/crawls/shop/{path}")
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        expect(page.locator("[data-load]")).to_have_count(0)

        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
        assert page.evaluate(_WIDE_TABLES) == [], path


def test_filters_fold_on_a_phone(page) -> None:
    """There they are a line that says what is set, and opens; where there is room they are open."""
    page.goto("/crawls/shop/failures?text=float")
    expect(page.get_by_label("Text")).to_be_visible()
    expect(page.get_by_text("Filters: text float")).to_be_hidden()
    page.set_viewport_size({"width": 390, "height": 800})

    expect(page.get_by_label("Text")).to_be_hidden()
    page.get_by_text("Filters: text float").click()
    expect(page.get_by_label("Text")).to_be_visible()


def test_buttons_of_a_row_stand_on_one_line(page) -> None:
    """What can be done stands beside each other at one height, whatever kind of button it is."""
    page.goto("/crawls/shop/item?id=SKU:T1001")
    for row in page.locator(".actions").all():
        found = row.locator("button, .button, summary").all()
        # What a closed <details> has may have a box, though nobody sees it.
        boxes = [one.bounding_box() for one in found if one.evaluate("e => e.checkVisibility()")]
        shown = [box for box in boxes if box and box["height"]]

        assert len({(round(box["y"]), round(box["height"])) for box in shown}) == 1


def test_a_limit_is_changed_in_fields_below_each_other(page, shop) -> None:
    """The fields of a slot's forms begin at the same place, and each stands beside its word."""
    page.goto("/crawls/shop/slots")
    page.get_by_text("change").first.click()
    forms = page.locator(".settings").first.locator("form")
    first = [form.locator("input:not([type=hidden])").first.bounding_box() for form in forms.all()]

    assert len({round(box["x"]) for box in first}) == 1
    assert len({round(box["y"]) for box in first}) == len(first) > 1


# Tables whose columns are cut off.
_WIDE_TABLES = """() => [...document.querySelectorAll("table")].filter((table) => {
  const room = table.parentElement;
  return room.scrollWidth > room.clientWidth + 1;
}).map((table) => table.textContent.trim().slice(0, 60))"""


def test_a_worker_that_died_stands_out(page, shop) -> None:
    """A worker without a sign of life is told by a word and a mark, apart from those that ended."""
    page.goto("/crawls/shop/workers")
    expect(page.locator("tbody tr .sign")).to_have_text("finished")
    engine = engines.sync_engine(shop)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE processes SET stopped_at = NULL, reason = NULL, "
            "lease_until = now() - interval '1 hour', locked_at = NULL"
        )
    engine.dispose()
    page.reload()

    expect(page.locator("tbody tr .sign.warn")).to_have_text("died")


def test_without_script_everything_still_works(browser, address) -> None:
    """Pages are read and failures handled in a browser that runs no script."""
    context = browser.new_context(base_url=address, java_script_enabled=False)
    page = context.new_page()
    page.goto("/crawls/shop/failures")
    page.get_by_role("button", name="run again").click()

    expect(page.get_by_role("status")).to_contain_text("1 failure is handled")
    context.close()


def test_a_database_that_goes_away_is_said_and_comes_back(browser, shop) -> None:
    """An open page says that the database is away, a new one waits, both go on when it is back."""
    engine = engines.sync_engine(shop)
    with proxy(engine) as (between, url), cockpits.cockpit(url) as address:
        context = browser.new_context(base_url=address)
        opened, later = context.new_page(), context.new_page()
        opened.goto("/crawls/shop/overview")
        expect(opened.locator("[data-part-live=numbers]")).to_contain_text("graph items")
        upstream, between._upstream = between._upstream, "/nowhere"
        between.cut()
        expect(opened.get_by_role("alert")).to_contain_text("is away")
        later.goto("/crawls/shop/tasks")
        expect(later.locator("h1")).to_have_text("The database is away")
        between._upstream = upstream

        expect(opened.get_by_role("alert")).to_be_hidden()
        expect(later.locator("h1")).to_have_text("Tasks")
        context.close()
    engine.dispose()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(browser, address, shop, scheme) -> None:
    """The checker of accessibility finds nothing on any page, wide and narrow, all opened."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    with ItemGraph.open(shop, "shop") as graph:
        graph.apply([CreateItem(id="A", tags=["product"], data={"url": "https://a.example/"})])
        failing = graph.failures.list()[0].item
        (group,) = graph.failures.groups()
    context = browser.new_context(base_url=address, color_scheme=scheme)
    page = context.new_page()
    tabs = [f"/crawls/shop/{tab.lower()}" for tab in TABS]
    items = [f"/crawls/shop/item?id={quote(name)}" for name in ("SKU:T1001", failing)]
    others = ("done", "explain?id=SKU:T1001", "simulate?id=SKU:T1001&task=parse_product")
    of_failures = (f"group?group={group.group.hex}", "list", "list", str(group.example.id))
    others += tuple(f"failures/{path}" for path in of_failures)
    rest = [f"/crawls/shop/{path}" for path in others]
    filled_queue.fill(shop)
    rest += filled_queue.pages(shop).values()
    found = []
    for number, path in enumerate(["/", *tabs, *items, *rest, "/crawls/none/overview"]):
        page.set_viewport_size({"width": 390 if number % 2 else 1280, "height": 800})
        page.goto(path)
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        expect(page.locator("[data-load]")).to_have_count(0)
        for violation in axe.run(page).response["violations"]:
            found += [(path, violation["id"], node["html"]) for node in violation["nodes"]]
    context.close()

    assert not found


def test_pictures_are_shown_and_nothing_in_them_runs(page, shop) -> None:
    """A picture stands on its item's page; another blob is saved; a script in one does not run."""
    svg = b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9" onload="owned=1"></svg>'
    with ItemGraph.open(shop, "shop") as graph:
        graph.apply(
            [
                AttachBlob("photo ü.svg", svg, id="SKU:T1001", mime="image/svg+xml"),
                AttachBlob("page.html", b"<script>owned=1</script>", id="SKU:T1001"),
            ]
        )
    page.goto("/crawls/shop/item?id=SKU:T1001")

    expect(page.locator("img.blob")).to_have_js_property("naturalWidth", 9)
    assert page.evaluate("window.owned") is None
    with page.expect_download() as saved:
        page.get_by_role("link", name="page.html").click()
    assert Path(saved.value.path()).read_bytes() == b"<script>owned=1</script>"
    answer = page.request.get(page.locator("img.blob").get_attribute("src"))
    assert "sandbox" in answer.headers["content-security-policy"]
    assert answer.headers["content-disposition"].startswith("attachment")


def test_who_may_only_read_has_no_buttons(browser, address, shop) -> None:
    """With tokens a browser logs in once; who may read sees all and is offered no change."""
    with ItemGraph.open(shop, "shop") as graph:
        secret = graph.tokens.add("Eve", "read")
    context = browser.new_context(base_url=address)
    page = context.new_page()
    page.goto("/crawls/shop/failures?task=parse_product")
    expect(page.locator("h1")).to_have_text("Log in")
    page.get_by_label("Token").fill("a guess")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_text("is not known")).to_be_visible()
    page.get_by_label("Token").fill(secret)
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("article")).to_have_count(1)
    assert page.url.endswith("/failures?task=parse_product")
    expect(page.get_by_role("button", name="run again")).to_have_count(0)
    answer = page.request.post("/crawls/shop/handle", form={"task": "parse_product"})
    assert answer.status == 403
    page.get_by_role("button", name="Log out").click()
    expect(page.locator("h1")).to_have_text("Log in")
    context.close()


def test_fifty_tabs_share_one_look(address, shop, monkeypatch) -> None:
    """However many listen to a crawl, the database is asked once at a time, not by each."""
    looks = []
    seen = crawls.overview_of
    monkeypatch.setattr(live, "overview_of", lambda graph: looks.append(1) or seen(graph))
    ready = threading.Barrier(50, timeout=60)

    def listen(_) -> bytes:
        with urllib.request.urlopen(f"{address}/crawls/shop/live", timeout=60) as stream:
            first = stream.readline()
            ready.wait()  # until all have heard something
            return first

    with ThreadPoolExecutor(50) as tabs:
        heard = set(tabs.map(listen, range(50)))

    assert heard == {b"event: parts\n"}
    assert len(looks) < 10
