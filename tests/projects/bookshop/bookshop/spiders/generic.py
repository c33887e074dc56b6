"""Scrapy's generic spiders."""

# ruff: noqa: RUF012

from __future__ import annotations

import os

from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, CSVFeedSpider, Rule, SitemapSpider, XMLFeedSpider

from bookshop.notes import note

SITE = os.environ["SITE"]


class Rules(CrawlSpider):
    """Rules with and without callbacks, and everything that a Rule takes."""

    name = "rules"
    allowed_domains = ["127.0.0.1"]
    start_urls = [
        f"{SITE}/tree",
        f"{SITE}/links?to=/page/1+/page/2%3Fa%3D1+/page/3+/status/404+/echo/2+/page/skip",
    ]
    rules = (
        Rule(LinkExtractor(allow=r"/tree/\d$"), follow=True),
        Rule(LinkExtractor(allow=r"/tree/1/\d"), callback="parse_leaf", cb_kwargs={"leaf": 1}),
        Rule(
            LinkExtractor(allow="/page/"),
            callback="parse_page",
            process_links="without_skipped",
            process_request="with_mark",
            follow=False,
        ),
        Rule(LinkExtractor(allow="/status/"), callback="parse_page", errback="failed"),
        Rule(LinkExtractor(allow="/echo/"), callback=lambda response: note("lambda", response)),
    )

    def parse_start_url(self, response):
        note("parse_start_url", response)
        return [{"start": response.url}]

    def process_results(self, response, results):
        return [*results, {"processed": response.url}]

    def parse_leaf(self, response, leaf):
        note("parse_leaf", response, leaf=leaf)
        yield {"leaf": response.url}

    def parse_page(self, response):
        note("parse_page", response)
        yield {"page": response.url}

    def without_skipped(self, links):
        return [link for link in links if "skip" not in link.url]

    def with_mark(self, request, response):
        if request.url.endswith("/3"):
            return None
        return request.replace(headers={"X-From": response.url}, priority=3)

    def failed(self, failure):
        note("failed", failure)


class Sitemap(SitemapSpider):
    """Sitemaps that robots.txt and an index name, with rules."""

    name = "sitemap"
    sitemap_urls = [f"{SITE}/robots.txt"]
    sitemap_rules = [("/book/", "parse_book"), ("/author/", "parse_author")]

    def parse_book(self, response):
        note("parse_book", response)
        yield {"book": response.url}

    def parse_author(self, response):
        note("parse_author", response)
        yield response.follow("/book/1", self.parse_book)
        yield response.follow("/book/3", self.parse_book)


class Feed(XMLFeedSpider):
    """An XML feed."""

    name = "feed"
    start_urls = [f"{SITE}/feed.xml"]
    itertag = "book"

    def parse_node(self, response, node):
        note("parse_node", response, id=node.attrib["id"])
        yield {"title": node.xpath("title/text()").get()}
        yield response.follow(node.xpath("link/text()").get(), self.parse_book)

    def parse_book(self, response):
        note("parse_book", response)

    def process_results(self, response, results):
        results = list(results)
        return [*results, {"results": len(results)}]


class Table(CSVFeedSpider):
    """A table in CSV."""

    name = "table"
    start_urls = [f"{SITE}/books.csv"]
    delimiter = ";"
    quotechar = "'"

    def parse_row(self, response, row):
        note("parse_row", response, **row)
        yield dict(row)
        yield response.follow(f"/page/{row['id']}", self.parse_book, cb_kwargs=row)

    def parse_book(self, response, id, title):  # noqa: A002
        note("parse_book", response, id=id, title=title)
