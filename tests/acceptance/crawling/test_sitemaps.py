"""Websites that say when their pages changed: a hint, which has a page fetched again."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from support import sites
from support.projects import Project

SPIDER = """
from scrapy_itemgraph.contrib.sitemaps import SitemapSpider


class S(SitemapSpider):
    name = "s"
    sitemap_urls = [SITE + "/robots.txt"]
    sitemap_rules = [("/page/", "parse_page"), ("/other/", "parse_other")]
    sitemap_follow = ["/sitemap/"]
    sitemap_alternate_links = True

    def sitemap_filter(self, entries):
        for entry in entries:
            if "unwanted" not in entry["loc"]:
                yield {**entry, "loc": entry["loc"].replace("/old/", "/page/")}

    def parse_page(self, response):
        yield {"url": response.url, "hint": response.meta.get("itemgraph_changed_at")}

    def parse_other(self, response):
        pass
"""
TTL = """
ITEMGRAPH_CALLBACKS = {"parse_page": {"ttl": "never"}, "parse_other": {"ttl": "30d"}}
"""
XMLNS = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
DAY = timedelta(days=1)


class Sitemaps(sites.Site):
    """An index of sitemaps, each with what `entries` says: a path, its lastmod, an alternate."""

    entries: dict[str, list[tuple[str, ...]]]

    def answer(self, target):
        self.robots = f"Sitemap: {self.url}/index.xml\n"
        status, headers, body = super().answer(target)
        if target == "/index.xml":
            given = [(path, now().isoformat()) for path in self.entries]
            body = self._document("sitemapindex", "sitemap", [*given, ("/unfollowed.xml",)])
        elif target in self.entries:
            body = self._document("urlset", "url", self.entries[target])
        else:
            return status, headers, body
        return 200, {"Content-Type": "application/xml"}, body

    def _document(self, kind, entry, given):
        inner = ""
        for path, lastmod, alternate in ((*one, None, None)[:3] for one in given):
            inner += f"<{entry}><loc>{self.url}{path}</loc>"
            inner += "" if lastmod is None else f"<lastmod>{lastmod}</lastmod>"
            inner += "" if alternate is None else f'<link href="{self.url}{alternate}"/>'
            inner += f"</{entry}>"
        return f'<?xml version="1.0"?><{kind} {XMLNS}>{inner}</{kind}>'.encode()


def now():
    """Return the time."""
    return datetime.now(UTC)


def fetched(site):
    """Return the pages that were asked for since the last time, sorted; each list was, once."""
    lists = {"/robots.txt", "/index.xml", *site.entries}
    assert set(site.hits) >= lists
    assert {site.hits[path] for path in lists} == {1}
    paths = sorted(path for path, hits in site.hits.items() for _ in range(hits))
    site.hits.clear()
    return [path for path in paths if path not in lists]


@pytest.mark.edge
def test_a_page_whose_lastmod_is_later_than_its_result_is_fetched_again(tmp_path, database):
    """48.4: the second run fetches the sitemaps and these pages; bad values are counted."""
    with sites.site(Sitemaps) as site:
        project = Project(tmp_path, database, site.url).write(SPIDER, TTL)
        site.entries = {
            "/sitemap/1": [(f"/page/{n}", (now() - n * DAY).isoformat()) for n in range(1, 10)],
            "/sitemap/2": [("/old/é", "2026"), ("/other/1",), ("/nobody/1",), ("/unwanted",)],
        }
        first = project.crawl()
        everything = [*(f"/page/{n}" for n in range(1, 10)), "/page/%C3%A9"]
        assert fetched(site) == sorted(["/other/1", *everything])
        changed = now()
        site.entries = {
            "/sitemap/1": [
                ("/page/1", f"{changed:%Y-%m-%dT%H:%M:%S.%fZ}"),
                ("/page/2", f"{changed:%Y-%m-%d}"),
                ("/page/3", f"{changed - DAY:%Y-%m-%d}"),
                ("/page/4", (changed - DAY).isoformat()),
                ("/page/5", f"{changed:%Y-%m}"),
                ("/page/6", f"{changed:%Y}"),
                ("/page/7", "this morning"),
                ("/page/8", f"{changed + 3 * DAY:%Y-%m-%d}"),
                ("/page/9", (changed + DAY).isoformat()),
                ("/page/10",),
            ],
            "/sitemap/2": [("/old/é", changed.isoformat(), "/other/1"), ("/unwanted", "2026")],
        }

        second = project.crawl()

        again = ["/other/1", "/page/1", "/page/10", "/page/2", "/page/%C3%A9"]
        assert fetched(site) == sorted(again)
        assert second.stats["itemgraph/changed_at_ignored"] == 5
        assert first.stats["reason"] == second.stats["reason"] == "finished"
        assert project.rows("SELECT count(*) FROM items WHERE data::text ~ 'changed_at'") == [(0,)]
        for run in (first, second):
            assert "log_count/WARNING" not in run.stats, run.log
            assert "'hint': None" in run.log


def test_a_sitemap_that_was_stamped_when_it_was_made_is_no_hint(tmp_path, database):
    """48.4: lastmods all of one moment, or of one day, are ignored; one warning says so."""
    with sites.site(Sitemaps) as site:
        project = Project(tmp_path, database, site.url).write(SPIDER, TTL)
        pages = [[f"/page/{kind}{n}" for n in range(10)] for kind in "ab"]
        site.entries = {f"/sitemap/{n}": [(one,) for one in pages[n]] for n in range(2)}
        project.crawl()
        assert len(fetched(site)) == 20
        moment = now()
        site.entries = {
            "/sitemap/0": [(one, moment.isoformat()) for one in pages[0]],
            "/sitemap/1": [(one, f"{moment:%Y-%m-%d}") for one in [*pages[1], "/page/new"]],
        }

        second = project.crawl()

        assert fetched(site) == ["/page/new"]
        assert second.log.count("lastmods are all of one moment") == 1
        assert second.stats["log_count/WARNING"] == 1
        assert second.stats["itemgraph/sitemaps_stamped"] == 2
        site.entries["/sitemap/0"][0] = ("/page/a0", (moment - DAY).isoformat())
        project.crawl()
        assert fetched(site) == [f"/page/a{n}" for n in range(1, 10)]


@pytest.mark.tracebacks("meta['itemgraph_changed_at'] must be")
def test_a_plain_link_may_say_when_its_page_changed(tmp_path, database):
    """48.4: a naive datetime is UTC, a known link is one again, and other values are an error."""
    spider = """
    from datetime import UTC, datetime, timedelta

    class S(scrapy.Spider):
        name = "s"
        start_urls = [SITE + "/page/0"]

        def parse(self, response):
            moment = datetime.now(UTC).replace(tzinfo=None)
            yield response.follow("/page/1", self.parse_page)
            yield response.follow("/page/1", self.parse_page, meta={KEY: moment})
            yield response.follow("/page/2", self.parse_page, meta={KEY: None})
            later = moment + timedelta(hours=1)
            yield response.follow("/page/3", self.parse_page, meta={KEY: later})
            yield response.follow("/page/4", self.parse_page, meta={KEY: "yesterday"})

        def parse_page(self, response):
            pass
    """.replace("KEY", '"itemgraph_changed_at"')
    with sites.site() as site:
        project = Project(tmp_path, database, site.url)
        project.write(spider, 'ITEMGRAPH_CALLBACKS = {"parse_page": {"ttl": "never"}}')

        runs = [project.crawl(), project.crawl()]

    pages = {path: hits for path, hits in site.hits.items() if path.startswith("/page/")}
    assert pages == {"/page/0": 2, "/page/1": 2, "/page/2": 1, "/page/3": 1}
    assert [run.stats["itemgraph/changed_at_ignored"] for run in runs] == [1, 1]
    ((url, message),) = project.errors()
    assert url == f"{site.url}/page/0"
    assert re.search("callback parse.* must be a datetime, such as .*, not 'yesterday'", message)
