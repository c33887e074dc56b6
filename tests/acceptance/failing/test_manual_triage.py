"""Debian's manual of PostgreSQL, crawled by an unmodified CrawlSpider that breaks on 80 pages."""

from __future__ import annotations

import csv
import re
import shlex
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from conftest import new_database
from support import cockpits, flawed_manual, logs, servers, sites, web_servers
from support.flawed_manual import CRAWL, CRAWL_NEW, MENDED_DASH, MENDED_HEADING, Terminal, mend
from support.projects import Project

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page

NOTHING = dict.fromkeys(("done", "waiting", "running", "later", "failed", "gone"), 0)

pytestmark = [
    pytest.mark.docs_crawl,
    pytest.mark.skipif(
        not (flawed_manual.MANUAL / "reference.html").exists(),
        reason="Debian's postgresql-doc-15 is not installed; .ci/run does it",
    ),
    pytest.mark.tracebacks("IndexError: list index", "ValueError: not enough values to unpack"),
]


@dataclass(frozen=True)
class Crawled:
    """The manual after its first crawl: the database, the screen, and what the site was asked."""

    url: str
    screen: str
    hits: Counter[str]


@pytest.fixture(scope="module")
def site() -> Iterator[flawed_manual.Reference]:
    """Serve the manual's reference pages to all tests."""
    with sites.site(flawed_manual.Reference) as one:
        yield one


@pytest.fixture(scope="module")
def crawled(server_url, template, site) -> Iterator[Crawled]:
    """Crawl the manual once, on a terminal."""
    with (
        new_database(server_url, template) as url,
        servers.open_directory() as directory,
    ):
        project = Project(directory, url, site.url)
        flawed_manual.write(project)
        screen = logs.take(Terminal(project).type(CRAWL))
        yield Crawled(url, screen, site.hits.copy())


@pytest.fixture
def database(server_url, crawled) -> Iterator[str]:
    """Yield a copy of the crawled database, to be triaged."""
    with new_database(server_url, crawled.url) as url:
        yield url


@pytest.fixture
def project(site, project) -> Project:
    """Return the crawled project, whose spider is not mended, and whose site lacks pages."""
    site.is_restored = False
    flawed_manual.write(project)
    return project


def command(shown: str, start: str) -> str:
    """Return the command that a screen shows first and that begins so, as it stands there."""
    return re.search(rf"scrapy itemgraph {start} \S+(?: https?:\S+)?", shown)[0]


def progress(shown: str) -> dict[str, int]:
    """Return the numbers that `status` shows of a run, all but the share, by their names."""
    lines = re.search(r"^progress +(.+(?:\n +.+)*)$", shown, re.MULTILINE)[1]
    line = " ".join(lines.split())
    known = re.sub(r"of [\d,]+ in this run \(\d+%\):", "done,", line)
    return {name: int(number) for number, name in re.findall(r"(\d+) ([a-z ]+)", known)}


def test_a_manual_is_triaged_on_the_terminal_alone(project, site, crawled):
    """80 pages fail in three ways: they are found, mended and fetched again, and no page besides.

    Commands work as they are shown, and no page is called by anything but its URL.
    """
    terminal = Terminal(project, [crawled.screen])
    type_ = terminal.type

    # What is wrong?
    assert (crawled.hits.total(), len(crawled.hits)) == (220, 220)
    failed = type_("scrapy itemgraph status")
    listed = type_("scrapy itemgraph failures")
    groups = type_("scrapy itemgraph failures --groups --sort count")
    assert progress(failed) == {**NOTHING, "done": 140, "failed": 80}
    assert re.search(r"^parse_command +136 .* 80 ", failed, re.MULTILINE)
    assert len(re.findall(r"^ *\d+ .* parse_command .*\.html$", listed, re.MULTILINE)) == 80
    found = re.findall(r"^ *(\d+) +(\d+) .* parse_command +(\w+)", groups, re.MULTILINE)
    group = {kind: int(number) for number, _, kind in found}
    counts = {kind: int(count) for _, count, kind in found}
    assert counts == {"IndexError": 60, "ValueError": 15, "http": 5}

    # The headings: most of what failed, seen in one example, mended, and run again together.
    one = type_(command(groups, "failures"))
    url = re.search(r"^page +(\S+)$", one, re.MULTILINE)[1]
    explained = type_(f"scrapy itemgraph explain {url}")
    assert url.removeprefix(site.url) in site.failing("heading")
    assert "in parse_command\n      synopsis = response.xpath(" in one
    assert f"\n  scrapy itemgraph handle {group['IndexError']}\n" in one
    assert command(explained, "failures") == f"scrapy itemgraph failures {group['IndexError']}"
    assert command(one, "handle --group") == command(groups, "handle --group")
    mend(project, *MENDED_HEADING)
    before = site.hits.copy()
    tried = type_(command(one, "simulate"))
    assert f"\nparse_command of {url}: ok\n" in tried
    assert "nothing was changed: this was a simulation" in tried
    assert site.hits - before == Counter([url.removeprefix(site.url)])
    assert "60 handled" in type_(command(one, "handle --group"))
    before = site.hits.copy()
    type_(CRAWL_NEW)
    assert site.hits - before == Counter(site.failing("heading"))

    # The rest: a page by the command that is shown, the others by their errors.
    one = type_(f"scrapy itemgraph failures {group['ValueError']}")
    assert "in parse_command\n      name, purpose = response.css(" in one
    mend(project, *MENDED_DASH)
    site.is_restored = True
    assert "1 handled" in type_(command(one, "handle"))
    assert "14 handled" in type_("scrapy itemgraph handle --error 'not enough values'")
    assert "5 handled" in type_("scrapy itemgraph handle --error 'http 404'")
    before = site.hits.copy()
    type_(CRAWL_NEW)
    assert site.hits - before == Counter(site.failing("dash", "missing"))

    # Nothing is left, and the data is whole.
    mended = type_("scrapy itemgraph status")
    assert "no failure is open" in type_("scrapy itemgraph failures")
    assert progress(mended) == {**NOTHING, "done": 220}
    assert "216 scraped items to manual.csv" in type_("scrapy itemgraph export -O manual.csv")
    with (project.directory / "manual.csv").open(newline="") as file:
        urls = [row["url"] for row in csv.DictReader(file)]
    assert sorted(urls) == [site.url + path for path in site.commands]
    assert not flawed_manual.DIGEST.search("".join(terminal.screens))


@dataclass(frozen=True)
class Person:
    """Somebody before a browser, who clicks on what can be read, and what was read."""

    page: Page
    read: list[str]

    def click(self, role: str, name: str | re.Pattern[str]) -> None:
        """Click on the first link, button or box of a name."""
        self.read.append(self.page.inner_text("body"))
        is_exact = isinstance(name, str)
        self.page.get_by_role(role, name=name, exact=is_exact).first.click()

    def look(self, *texts: str) -> None:
        """Wait until the page shows each text."""
        for text in texts:
            self.page.get_by_text(text).first.wait_for()
        self.read.append(self.page.inner_text("body"))

    def find(self, text: str) -> None:
        """Look for something by the field at the top."""
        self.page.get_by_label("Find a page or item").fill(text)
        self.page.keyboard.press("Enter")


@pytest.fixture
def person(project, site, monkeypatch) -> Iterator[Person]:
    """Return somebody before the cockpit of the project; no script of it may break."""
    monkeypatch.setenv("SITE", site.url)
    with (
        web_servers.serving(project.url, cwd=project.directory) as server,
        cockpits.chromium() as browser,
    ):
        page = browser.new_page(base_url=server.url)
        wrong: list[str] = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto("/")
        yield Person(page, [])
        assert not wrong


def crawl_again(project, site, *kinds: str) -> None:
    """Crawl what is new and what failed: these are the pages with some flaws, and no others."""
    before = site.hits.copy()
    assert project.scrapy(*shlex.split(CRAWL_NEW)[1:]).code == 0
    assert site.hits - before == Counter(site.failing(*kinds))


def test_a_manual_is_triaged_in_the_browser_alone(person, project, site):
    """The same 80 failures, by clicks on what the pages show, in a server of the project.

    One is found by its page's URL, read, mended and simulated; then all that are alike are handled,
    ticked in a list, as a group, and by a filter. No id is typed or shown.
    """
    page, click, look = person.page, person.click, person.look

    # What is wrong?
    click("link", "manual")
    click("link", "80 open failures")
    page.get_by_label("Sort").select_option("most first")
    click("button", "Show")
    page.wait_for_url("**sort=count**")
    page.locator("article .count").first.wait_for()
    counts = page.locator("article .count").all_inner_texts()
    assert [one.split()[0] for one in counts] == ["60", "15", "5"]

    # A page of the headings is found, read, mended and tried.
    path = min(site.failing("heading"))
    person.find(site.url + path)
    look(site.url + path, "held")
    click("link", re.compile(r"^Failure \d+$"))
    look("IndexError: list index out of range")
    assert "synopsis = response.xpath(" in page.get_by_label("Traceback").inner_text()
    assert "<title>" in page.get_by_label("Snippet of the response").inner_text()
    mend(project, *MENDED_HEADING)
    before = site.hits.copy()
    click("link", "Simulate…")
    click("button", "Simulate")
    look("It would succeed")
    assert site.hits - before == Counter([path])

    # Those that are alike are ticked, and run again together.
    click("link", site.url + path)
    click("link", re.compile(r"^Failure \d+$"))
    click("link", "All failures of its group")
    page.locator("tbody tr").nth(59).wait_for()
    assert page.locator("tbody tr").count() == 60
    page.get_by_label("all that are shown").check()
    click("button", "Handle these: run again")
    look("60 failures are handled: they may run again")
    crawl_again(project, site, "heading")

    # The rest: what a filter chooses, and a group.
    mend(project, *MENDED_DASH)
    site.is_restored = True
    click("link", "Overview")
    click("link", "20 open failures")
    page.get_by_label("Text").fill("http 404")
    click("button", "Show")
    click("button", re.compile("Handle all that these filters choose"))
    look("5 failures are handled")
    click("link", re.compile("^Failures"))
    click("button", "Handle: run again")
    look("15 failures are handled", "No open failure")
    crawl_again(project, site, "dash", "missing")

    # Nothing is left.
    click("link", "Overview")
    look("no open failure", "100%")
    assert not flawed_manual.DIGEST.search("\n".join(person.read))
