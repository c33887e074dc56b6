"""Commands that look without a database, and crawls without a project."""

from __future__ import annotations

import pytest
from support.projects import Project

NOWHERE = "postgresql://nobody@127.0.0.1:1/nowhere"


PLAIN = """
import os

import scrapy

SITE = os.environ["SITE"]


class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/1"]

    def parse(self, response):
        '''A contract.

        @url URL
        @returns requests 1 1
        '''
        yield {"url": response.url}
        yield scrapy.Request(SITE + "/page/2", self.more)

    def more(self, response):
        yield {"more": response.url}
"""


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["list"], "s"),
        (["fetch", "URL"], "<h1>/page/1</h1>"),
        (["shell", "URL", "-c", "response.css('h1::text').get()"], "/page/1"),
        (["parse", "URL", "--spider", "s", "-c", "parse", "--depth", "2"], "more"),
        (["check", "s"], ""),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_commands_that_look_do_not_touch_the_database(tmp_path, site, arguments, expected):
    """With a drop-in spider `list`, `fetch`, `shell`, `parse` and `check` need no database."""
    project = Project(tmp_path, NOWHERE, site.url)
    url = site.url + "/page/1"
    project.write(PLAIN.replace("URL", url))

    run = project.scrapy(*(url if one == "URL" else one for one in arguments))

    assert run.code == 0, run.log
    assert expected in run.output
    assert "ERROR" not in run.log
    assert "database" not in run.log


def test_runspider_uses_a_database_in_the_working_directory(tmp_path, site):
    """A spider in a file of its own: the embedded server stands under the working directory."""
    project = Project(tmp_path, "", site.url)
    settings = 'custom_settings = {"ADDONS": {"scrapy_itemgraph.Addon": 500}}'
    text = PLAIN.replace('name = "s"', f'name = "s"\n    {settings}')
    (tmp_path / "lonely.py").write_text(text)

    run = project.scrapy("runspider", "lonely.py", "-s", 'ADDONS={"scrapy_itemgraph.Addon": 500}')
    again = project.scrapy("runspider", "lonely.py", "-s", 'ADDONS={"scrapy_itemgraph.Addon": 500}')

    assert run.code == again.code == 0, run.log
    assert (tmp_path / ".scrapy" / "itemgraph").is_dir()
    assert str(tmp_path / ".scrapy" / "itemgraph") in run.log
    assert "Run 2 of this crawl is a new crawl of the site" in again.log
    assert site.hits == {"/page/1": 2, "/page/2": 2}
