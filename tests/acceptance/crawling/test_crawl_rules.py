"""Pages of a CrawlSpider's rules are told apart by the rules' callbacks, whatever their order."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from support import sites

from scrapy_itemgraph.postgres import engine as engines

RULES = """
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule


class S(CrawlSpider):
    name = "s"
    start_urls = [SITE + "/"]
    is_broken = False

    def _callback(self, response, **cb_kwargs):
        return super()._callback(response, **cb_kwargs)

    def parse_class(self, response, kind):
        if self.is_broken:
            raise ValueError("broken")
        yield {"class": response.url, "kind": kind}

    def parse_method(self, response):
        yield {"method": response.url}

    rules = [
        Rule(LinkExtractor(allow="/list")),
        Rule(LinkExtractor(allow="/class"), callback="parse_class", cb_kwargs={"kind": "c"}),
        Rule(LinkExtractor(allow="/method"), callback="parse_method", process_request="marked"),
    ]

    def marked(self, request, response):
        return request.replace(meta={**request.meta, "from": response.url})
"""

# The same rules the other way round, with one more before them.
MOVED = (
    RULES
    + """
    rules = [Rule(LinkExtractor(allow="/none"), callback="parse_none"), *reversed(rules)]

    def parse_none(self, response):
        yield {"none": response.url}
"""
)

# As an earlier version stored what rules found: under Scrapy's own name.
AS_BEFORE = [
    "UPDATE tags SET tag_name = 'callback:_callback' WHERE tag_name = 'callback:parse_class'",
    "UPDATE task_tags SET tag_name = 'callback:_callback' WHERE tag_name = 'callback:parse_class'",
    "UPDATE tasks SET name = '_callback' WHERE name = 'parse_class'",
]


class Manual(sites.Site):
    """A list, and behind it a class and two methods."""

    def respond(self, _method, target, _headers, _body):
        """Answer with links."""
        self.hits[target] += 1
        links = {"/": ["/list"], "/list": ["/class/1", "/method/1", "/method/2"]}.get(target, ())
        body = "".join(f'<a href="{path}">{path}</a>' for path in links)
        return 200, {"Content-Type": "text/html"}, body.encode()


def store_as_before(project):
    """Have a page of a rule stored as an earlier version did it."""
    engine = engines.sync_engine(project.url)
    with engine.begin() as connection:
        for statement in AS_BEFORE:
            connection.execute(sa.text(statement))
    engine.dispose()


def done(project):
    """Return (task, path) of each attempt that went well."""
    rows = project.rows(
        "SELECT t.name, i.data->>'url' FROM attempts a JOIN tasks t ON t.id = a.task_id "
        "JOIN items i ON i.id = a.item_id WHERE a.outcome = 'ok' ORDER BY a.id"
    )
    return [(task, url.removeprefix(project.site_url)) for task, url in rows]


@pytest.mark.tracebacks("ValueError: broken")
def test_rules_go_by_their_callbacks_from_run_to_run(project):
    """A page that failed goes to its callback by a rule's new number; so do pages stored before."""
    settings = 'ITEMGRAPH_CALLBACKS = {"parse_class": {"max_failures": 5}}\n'
    with sites.site(Manual) as site:
        project.site_url = site.url
        project.write(RULES.replace("is_broken = False", "is_broken = True"), settings)
        first = project.crawl()
        failed = project.scrapy("itemgraph", "failures", "--task", "parse_class")
        project.scrapy("itemgraph", "handle", "--task", "parse_class")
        before = done(project)
        project.write(MOVED, settings)
        second = project.crawl("-O", "second.jsonl")
        store_as_before(project)
        third = project.crawl("-O", "third.jsonl")

    assert "/class/1" in failed.output, failed.log
    assert sorted(before) == [
        ("follow", "/list"),
        ("parse", "/"),
        ("parse_method", "/method/1"),
        ("parse_method", "/method/2"),
    ], first.log
    assert ("parse_class", 5) in project.rows("SELECT name, max_failures FROM tasks")
    assert '"kind": "c"' in (project.directory / "second.jsonl").read_text(), second.log
    assert ("_callback", "/class/1") in done(project)
    assert done(project).count(("parse_class", "/class/1")) == 1, third.log
    assert '"kind": "c"' in (project.directory / "third.jsonl").read_text()
    assert project.errors() == []
    assert "ITEMGRAPH_CALLBACKS['parse_class'] changes nothing" not in first.log


def test_a_page_that_was_stored_before_rules_had_names_takes_its_name_when_it_is_done(project):
    """Where results are kept from run to run it comes up once it is stale, and then is fresh."""
    with sites.site(Manual) as site:
        project.site_url = site.url
        project.write(RULES, 'ITEMGRAPH_DEFAULT_TTL = "never"\n')
        project.crawl()
        store_as_before(project)
        project.scrapy("itemgraph", "expire", site.url + "/class/1")
        second = project.crawl()
        third = project.crawl()
        hits = site.hits["/class/1"]

    tags = project.rows("SELECT tag_name FROM tags WHERE tag_name LIKE 'callback:%class'")
    assert tags == [("callback:parse_class",)], second.log
    fresh = project.rows(
        "SELECT t.name FROM results r JOIN tasks t ON t.id = r.task_id "
        "WHERE r.invalidated_at IS NULL AND t.name IN ('_callback', 'parse_class')"
    )
    assert fresh == [("parse_class",)]
    assert hits == 2, third.log
    assert project.errors() == []
