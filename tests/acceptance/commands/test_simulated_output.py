"""`scrapy itemgraph simulate` says which line yielded what is wrong, and what nobody yielded."""

from __future__ import annotations

import json

import pytest

SPIDER = """
class S(scrapy.Spider):
    name = "s"

    async def start(self):
        cookies = {"lang": "en", "session": "0123456789" * 4}
        yield scrapy.Request(SITE + "/page/list", cookies=cookies)

    def parse(self, response):
        yield {"title": "a list"}
        yield from self.parse_rest(response)

    def parse_rest(self, response):
        yield CreateItem("")  # the wrong one

    def parse_lost(self, response):
        CreateItem("A", data={"n": 1})  # the first
        for number in range(3):
            scrapy.Request(SITE + f"/page/{number}")  # the others
        self.held = CreateItem("HELD")
        response.follow("/page/followed").replace(priority=1)  # the last

    async def parse_all(self, response):
        asked = scrapy.Request(SITE + "/page/asked")
        answer = await self.crawler.engine.download_async(asked)
        yield CreateItem("B", data={"status": answer.status})
        yield scrapy.Request(SITE + "/page/next").replace(priority=1)
        yield scrapy.Request(SITE + "/page/odd", lambda response: None)  # the odd one
        for number in range(2):
            yield scrapy.Request(SITE + f"/page/{number}", self.parse_row)  # the bare ones

    def parse_row(self, response, row):
        yield {"row": row}
"""


def line(project, text):
    """Return how a traceback begins that names the line of the spider with a text."""
    (path,) = project.directory.rglob("s.py")
    number = next(n for n, one in enumerate(path.read_text().splitlines(), 1) if text in one)
    return f'File "{path}", line {number}, in '


def simulate(project, *arguments, code=0):
    """Simulate, and return the document."""
    run = project.scrapy("itemgraph", "simulate", "s", *arguments, "--json")
    assert run.code == code, run.log + run.output
    return json.loads(run.output)


@pytest.mark.tracebacks("the wrong one")
def test_the_line_of_the_spider_is_named(project, site):
    """SRAP-36: of what is wrong in a crawl and in a simulation, of what was not yielded, and why.

    A callback that lacks an argument of its request is told with that line, too. A request that the
    callback downloads or copies is used, and what it keeps may be yielded yet. Redirects are
    followed, and so are requests that cannot be stored.
    """
    project.write(SPIDER)
    assert project.crawl().code == 0
    ((error,),) = project.rows("SELECT error FROM failures")
    page = f"{site.url}/page/list"

    failed = project.scrapy("itemgraph", "simulate", "s", page)
    lost = simulate(project, f"{site.url}/redirect?to=/page/new", "--callback", "parse_lost")
    whole = simulate(project, page, "--callback", "parse_all")

    wrong = line(project, "the wrong one")
    assert f"{wrong}parse_rest" in error["traceback"]
    assert error["place"].endswith("S.parse_rest")
    assert f"{wrong}parse_rest" in failed.output
    assert "session=012345678901… (40 characters)" in failed.output
    assert "made up" not in failed.output
    assert (lost["is_made_up"], lost["has_yielded"]) == (True, False)
    assert lost["requests"][-1]["url"] == f"{site.url}/page/new"
    assert [(one["made"], one["line"], one["times"]) for one in lost["not_yielded"]] == [
        ("CreateItem A", f"{line(project, 'the first')}S.parse_lost", 1),
        (f"Request {site.url}/page/0", f"{line(project, 'the others')}S.parse_lost", 3),
        (f"Request {site.url}/page/followed", f"{line(project, 'the last')}S.parse_lost", 1),
    ]
    assert (whole["is_made_up"], whole["has_yielded"], whole["not_yielded"]) == (False, True, [])
    assert [one["url"].rpartition("/")[2] for one in whole["requests"]] == ["list", "asked", "odd"]
    assert whole["requests"][0]["cookies"] == {"lang": "en", "session": "0123456789" * 4}
    (lacking,) = [one for one in whole["warnings"] if "parse_row" in one]
    assert lacking == (
        f"Request {site.url}/page/0 and 1 more: parse_row fails with its cb_kwargs: missing a "
        f"required argument: 'row' ({line(project, 'the bare ones')}S.parse_all)"
    )
    (warning,) = [one for one in whole["warnings"] if "cannot be stored" in one]
    assert f"({line(project, 'the odd one')}S.parse_all)" in warning
