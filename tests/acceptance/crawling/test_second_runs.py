"""What a second run of an unmodified spider does: what Scrapy's would, or what a ttl says."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
import sqlalchemy as sa
from support import queued, sites
from support.projects import Project, kill, until

from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.store.admin import crawl_changes

FEED = 'FEEDS = {"out.jsonl": {"format": "jsonlines", "overwrite": True}}\n'
CRAWL = sa.text("SELECT id FROM crawls")
NEVER = 'ITEMGRAPH_DEFAULT_TTL = "never"\n'
OPEN_FAILURES = "SELECT count(*) FROM failures WHERE handled_at IS NULL"

# Pages that link to each other, to one page twice, and to redirects to pages that others link to.
SHOP = """
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/0", SITE + "/redirect?to=/page/home"]

    def parse(self, response):
        yield {"page": response.url.removeprefix(SITE)}
        number = response.url.rpartition("/")[2]
        number = int(number) if number.isdigit() else 3
        for child in (3 * number + 1, 3 * number + 2, 3 * number + 3):
            if child < LAST:
                yield response.follow(f"/page/{child}", self.parse_page)
        yield response.follow("/page/0", self.parse_page)

    def parse_page(self, response):
        yield from self.parse(response)
        number = int(response.url.rpartition("/")[2])
        yield response.follow(f"/redirect?to=/page/{(number * 7) % LAST}", self.parse_page)
"""


def pages(project):
    """Return what the feed of the last run has, sorted."""
    lines = (project.directory / "out.jsonl").read_text().splitlines()
    return sorted(json.loads(line)["page"] for line in lines)


def test_three_runs_give_three_equal_feeds(project, site):
    """Links, redirects to pages that others link to, start pages: each run has all of it once."""
    project.write(SHOP.replace("LAST", "40"), FEED)

    feeds = []
    for _ in range(3):
        run = project.crawl()
        assert run.stats["reason"] == "finished", run.log
        assert "will hold only" not in run.log
        feeds.append(pages(project))

    project.write(SHOP.replace("LAST", "40"), FEED + "ITEMGRAPH_ENABLED = False\n")
    assert project.crawl().code == 0
    plain = pages(project)
    assert feeds[1] == feeds[2] == feeds[0]
    assert feeds[0] == plain


def test_with_a_ttl_of_never_a_second_run_has_what_is_new(project, site):
    """It fetches the start pages and what it does not know yet; the log says so."""
    project.write(SHOP.replace("LAST", "10"), FEED + NEVER)
    first = project.crawl()
    before = pages(project)

    project.write(SHOP.replace("LAST", "12"), FEED + NEVER)
    second = project.crawl()

    assert "Run 1 of this crawl is incremental" in first.log
    assert "Run 2 of this crawl is incremental" in second.log
    assert "out.jsonl will hold only what is scraped from now on" in second.log
    new = set(pages(project)) - set(before)
    assert new == {"/page/10", "/page/11"}
    assert set(pages(project)) - new <= {"/page/0", "/page/home"}


SET_TTL = ("itemgraph", "set-ttl", "--task", "_parse_sitemap", "--recompute")
SITEMAPS = """
class S(scrapy.spiders.SitemapSpider):
    name = "s"
    sitemap_urls = [SITE + "/sitemap/index"]

    def parse(self, response):
        yield {"url": response.url}
"""


class Sitemaps(sites.Site):
    """A sitemap index with one sitemap, which has as many pages as `pages` says."""

    pages = 3

    def answer(self, target):
        status, headers, body = super().answer(target)
        if not target.startswith("/sitemap/"):
            return status, headers, body
        kind, entry = ("sitemapindex", "sitemap") if target.endswith("index") else ("urlset", "url")
        paths = ["/sitemap/1"]
        if kind == "urlset":
            paths = [f"/page/{n}" for n in range(self.pages)]
        xmlns = "http://www.sitemaps.org/schemas/sitemap/0.9"
        inner = "".join(f"<{entry}><loc>{self.url}{path}</loc></{entry}>" for path in paths)
        document = f'<?xml version="1.0"?><{kind} xmlns="{xmlns}">{inner}</{kind}>'
        return 200, {"Content-Type": "application/xml"}, document.encode()


def test_a_run_that_finds_nothing_for_its_lists_are_fresh_for_ever_says_so(tmp_path, database):
    """A SitemapSpider with a default ttl of never: the warning names the callback, and its cure."""
    with sites.site(Sitemaps) as site:
        project = Project(tmp_path, database, site.url).write(SITEMAPS, NEVER)
        first = project.crawl()
        site.pages = 4
        second = project.crawl()
        cure = 'ITEMGRAPH_CALLBACKS = {"_parse_sitemap": {"ttl": "1h"}}'
        assert "found nothing new" not in first.log
        assert "/page/3" not in site.hits
        assert cure in second.log
        project.write(SITEMAPS, NEVER + cure.replace("1h", "1s"))
        project.crawl()
        assert project.scrapy(*SET_TTL).code == 0
        last = project.crawl()
        assert "/page/3" in site.hits, last.log
        assert "found nothing new" not in last.log


def test_a_ttl_of_one_callback_makes_its_pages_incremental(project, site):
    """ITEMGRAPH_CALLBACKS and meta alike; what other callbacks get is fetched by each run."""
    project.write(
        """
    class S(scrapy.Spider):
        name = "s"
        start_urls = [SITE + "/page/0"]

        def parse(self, response):
            yield response.follow("/page/kept", self.kept)
            yield response.follow("/page/plain", self.plain)
            yield response.follow("/page/meta", self.plain, meta={"itemgraph_ttl": "never"})

        def kept(self, response):
            yield response.follow("/page/below", self.plain)

        def plain(self, response):
            pass
    """,
        'ITEMGRAPH_CALLBACKS = {"kept": {"ttl": "never"}}',
    )

    runs = [project.crawl() for _ in range(2)]

    assert [run.stats["reason"] for run in runs] == ["finished"] * 2
    assert "a new crawl of the site" in runs[1].log
    assert "but for kept (ITEMGRAPH_CALLBACKS)" in runs[1].log
    once = {"/page/kept", "/page/below", "/page/meta"}
    assert {path for path, hits in site.hits.items() if hits == 1} == once
    assert {path for path, hits in site.hits.items() if hits == 2} == {"/page/0", "/page/plain"}


def test_pages_of_a_callback_expire_by_the_clock(project, site):
    """SS-6: a plain callback's pages stay done until its time of the day, and `explain` says so."""
    clock = {"at": "03:00", "time_zone": "Europe/Berlin"}
    project.write(SHOP.replace("LAST", "4"), f"ITEMGRAPH_CALLBACKS = {{'parse_page': {clock}}}")
    project.crawl()
    second = project.crawl()
    explained = project.scrapy("itemgraph", "explain", f"{site.url}/page/1")
    listed = project.scrapy("itemgraph", "tasks")
    with queued.transaction(project.url) as connection:
        crawl_changes.age(connection, connection.scalar(CRAWL), timedelta(days=1))
    project.crawl()

    assert "but for parse_page (ITEMGRAPH_CALLBACKS)" in second.log
    assert "03:00 Europe/Berlin by its schedule" in explained.output
    assert "at 03:00 Europe/Berlin" in listed.output
    assert site.hits["/page/1"] == 2


def test_what_nobody_links_to_any_more_is_not_fetched(project, site):
    """It stays as it is: a new run fetches what it reaches, and only that."""
    project.write(SHOP.replace("LAST", "12"), FEED)
    project.crawl()
    project.write(SHOP.replace("LAST", "8"), FEED)

    second = project.crawl()

    assert second.stats["reason"] == "finished", second.log
    assert {site.hits[f"/page/{n}"] for n in range(8, 12)} == {1}
    assert {site.hits[f"/page/{n}"] for n in range(1, 8)} == {2}
    assert project.rows("SELECT count(*) FROM work") == [(0,)]


def test_a_killed_second_run_goes_on_where_it_was(project):
    """What it has fetched is not fetched again by its next start; the rest is, once."""
    with sites.site() as site:
        project.site_url = site.url
        project.write(
            SHOP.replace("LAST", "60"),
            "CONCURRENT_REQUESTS = 1\nDOWNLOAD_DELAY = 0.02\nITEMGRAPH_COMMIT_INTERVAL = 0.01\n",
        )
        project.crawl()
        site.hits.clear()
        process = project.start("crawl", "s")
        until(lambda: site.hits["/page/20"] > 0, project.log)
        kill(process)

        rest = project.crawl()

    assert rest.stats["reason"] == "finished", rest.log
    assert "Run 2 of this crawl" not in rest.log
    assert "resuming" in rest.log
    seen = {path: hits for path, hits in site.hits.items() if path.startswith("/page/")}
    assert len(seen) == 61
    assert sum(hits - 1 for hits in seen.values()) <= 5, seen  # what was under way


@pytest.mark.tracebacks("ValueError: broken")
def test_a_page_that_failed_is_tried_again_by_a_new_run(project, site):
    """Its failure is handled by that, or another takes its place; a stopped callback stays so."""
    spider = """
    class S(scrapy.Spider):
        name = "s"
        start_urls = [SITE + "/page/0"]

        def parse(self, response):
            for n in range(4):
                yield response.follow(f"/page/broken/{n}", self.broken)

        def broken(self, response):
            if BROKEN:
                raise ValueError("broken")
            yield {"page": response.url}
    """
    stopping = 'ITEMGRAPH_CALLBACKS = {"broken": {"max_failures": 4}}\n'
    project.write(spider.replace("BROKEN", "True"), stopping)
    project.crawl()
    first = project.rows(OPEN_FAILURES)

    project.write(spider.replace("BROKEN", "False"), stopping)
    stopped = project.crawl()
    handled = project.scrapy("itemgraph", "handle", "--all")
    mended = project.crawl()
    project.write(spider.replace("BROKEN", "True"))
    project.crawl()
    project.write(spider.replace("BROKEN", "False"))
    last = project.crawl()

    assert first == [(4,)]
    assert "item_scraped_count" not in stopped.stats, stopped.log
    assert handled.code == 0, handled.log
    assert mended.stats["item_scraped_count"] == 4, mended.log
    assert last.stats["item_scraped_count"] == 4, last.log
    assert project.rows(OPEN_FAILURES) == [(0,)]


def test_a_clock_that_goes_back_between_runs_hides_nothing(project, site):
    """What is of an earlier run is told by its number: it may be completed in the future."""
    project.write(SHOP.replace("LAST", "10"), FEED)
    project.crawl()
    before = pages(project)
    engine = engines.sync_engine(project.url)
    with engine.begin() as connection:
        for table, column in (
            ("results", "created_at"),
            ("results", "completed_at"),
            ("items", "updated_at"),
            ("runs", "started_at"),
        ):
            later = f"UPDATE {table} SET {column} = {column} + interval '2 h'"
            connection.exec_driver_sql(later)
    engine.dispose()

    second = project.crawl()
    third = project.crawl()

    assert [run.stats["reason"] for run in (second, third)] == ["finished"] * 2
    assert pages(project) == before
