"""The same crawl twice: with tasks on the item graph, and as plain Scrapy does it."""

from __future__ import annotations

import os
from urllib.parse import urldefrag

import scrapy
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule

from scrapy_itemgraph import CreateItem, UpdateData, UpdateMetadata, task

HEADINGS = "h1, h2"


def links(response):
    """Return the pages of the site that a page links to, once each."""
    found = {urldefrag(response.urljoin(a))[0] for a in response.css("a::attr(href)").getall()}
    site = response.urljoin("/")
    return sorted(url for url in found if url.startswith(site) and url.endswith(".html"))


def headings(response):
    """Return the text of a page's headings."""
    return [" ".join(h.css("::text").getall()).strip() for h in response.css(HEADINGS)]


class ManualsSpider(scrapy.Spider):
    """Keeps title and outgoing links as data of each page, headings as metadata."""

    name = "manuals"

    def seeds(self):
        yield CreateItem(id=self.site, tags=["page"], data={"url": self.site})

    @task(tags=["page"], ttl="7d")
    def parse_page(self, response, item):
        out = links(response)
        for url in out:
            yield CreateItem(id=url, tags=["page"], data={"url": url})
        yield UpdateData({"title": response.css("title::text").get(), "links": out})
        yield UpdateMetadata({"headings": headings(response)})


class OutlinedSpider(ManualsSpider):
    """With a second task that needs the first one's result and no download."""

    name = "outlined"

    @task(
        tags=["page"],
        depends_on=["parse_page"],
        download=False,
        version=os.environ.get("OUTLINE_VERSION", "1"),
    )
    async def outline(self, response, item):
        metadata = await item.get_metadata("parse_page")
        yield UpdateMetadata({"outline": [item.data["title"], *metadata["headings"]]})


class PlainSpider(scrapy.Spider):
    """Plain Scrapy."""

    name = "plain"

    async def start(self):
        yield scrapy.Request(self.site)

    def parse(self, response):
        out = links(response)
        yield {
            "url": response.url,
            "title": response.css("title::text").get(),
            "links": out,
            "headings": headings(response),
        }
        for url in out:
            yield response.follow(url)


class RulesSpider(CrawlSpider):
    """As in Scrapy's documentation; knows nothing of the item graph."""

    name = "rules"
    rules = (Rule(LinkExtractor(allow=r"\.html$"), callback="parse_page", follow=True),)

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.start_urls = [self.site]

    def parse_page(self, response):
        yield {
            "url": response.url,
            "title": response.css("title::text").get(),
            "headings": headings(response),
        }
