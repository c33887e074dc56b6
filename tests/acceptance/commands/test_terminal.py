"""What a person reads at the terminal: of requests, of errors, in the log and in tables."""

from __future__ import annotations

import json
import re

import pytest
from scrapy import cmdline
from scrapy.settings import Settings

pytestmark = pytest.mark.tracebacks("ValueError: the page said")

HASHED = re.compile(r"(REQ|START):[0-9a-f]{8}")

SHOP = """
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/list"]

    def parse(self, response):
        yield scrapy.Request(SITE + "/page/1", self.detail)
        yield scrapy.FormRequest(SITE + "/page/search", self.detail, formdata={"q": "tea"})
        yield scrapy.FormRequest(SITE + "/page/twice", self.detail, formdata={"q": "a"})
        yield scrapy.FormRequest(SITE + "/page/twice", self.detail, formdata={"q": "b"})

    def detail(self, response):
        raise ValueError("the page said: " + "lorem ipsum " * 400 + "and the price is missing")
"""


@pytest.fixture
def command(project, capsys, monkeypatch):
    """Return a function that runs `scrapy itemgraph` in this process, on the project's crawl."""
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments):
        given = Settings({"ITEMGRAPH_DATABASE_URL": project.url}, priority="project")
        capsys.readouterr()
        with pytest.raises(SystemExit):
            cmdline.execute(["scrapy", "itemgraph", *arguments], given)
        written = capsys.readouterr()
        return written.out + written.err

    return run


def document(command, *arguments):
    """Return what a command writes with --json."""
    return json.loads(command(*arguments, "--json"))


def test_requests_are_shown_by_their_urls(project, site, command):
    """Tables, explain, show and the log name a request by method and URL, --json beside its id."""
    ran = project.write(SHOP).crawl()
    failures = document(command, "failures")
    posted = f"POST {site.url}/page/search"
    (search,) = [one for one in failures if one["url"].endswith("/search")]
    table = command("failures")
    explained = command("explain", posted)
    by_url = document(command, "explain", f"{site.url}/page/search")
    shown = document(command, "show", posted)
    human = command("show", posted)
    command("handle", "--all")
    waiting = document(command, "worklist")
    listed = command("worklist")
    unclear = command("explain", f"POST {site.url}/page/twice")

    assert not HASHED.search(ran.log), ran.log
    assert f"[new] {posted}" in ran.log
    assert f"[failed] spider s, callback detail, {posted}: ValueError" in ran.log
    assert not HASHED.search(table + explained + listed)
    for text in (table, listed):
        assert posted in text
        assert f"{site.url}/page/1" in text
        assert f"GET {site.url}" not in text
    assert (search["url"], search["method"]) == (f"{site.url}/page/search", "POST")
    assert search["item"].startswith("REQ:")
    assert {(one["method"], one["item"][:4]) for one in waiting} == {
        ("GET", "REQ:"),
        ("POST", "REQ:"),
    }
    assert explained.startswith(f"{posted}\ndetail: held, does not run now\n")
    assert {(one["item"], one["method"]) for one in by_url} == {(search["item"], "POST")}
    assert (shown["id"], shown["url"], shown["method"]) == (
        search["item"],
        f"{site.url}/page/search",
        "POST",
    )
    assert re.search(rf"^request +{re.escape(posted)}$", human, re.MULTILINE)
    assert re.search(rf"^created by +{re.escape(site.url)}/page/list$", human, re.MULTILINE)
    assert len(HASHED.findall(unclear)) == 2


def test_long_errors_keep_their_end(project, command):
    """Of an error that is too long to show or to keep the middle is left out, not the cause."""
    ran = project.write(SHOP).crawl()
    listed = command("failures")
    (kept, *_) = document(command, "failures")
    one = command("failures", str(kept["id"]))
    shown = command("show", f"{project.site_url}/page/1")

    for said in (ran.log, one, shown, kept["error"]["message"]):
        assert "the page said: lorem" in said
        assert "and the price is missing" in said
    assert len(kept["error"]["message"]) < 2100
    _, _, attempts = shown.partition("OUTCOME")
    errors = [line for line in attempts.splitlines() if line.startswith("    ")]
    assert len(errors) == 3
    assert all(len(line) <= 100 for line in errors)
    _, *lines = listed.splitlines()
    assert len(lines) == 4
    assert all(len(line) <= 100 and "ValueError: the page said" in line for line in lines)
