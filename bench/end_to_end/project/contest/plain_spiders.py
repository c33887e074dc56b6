"""Spiders that know nothing of the item graph."""

from __future__ import annotations

import scrapy

from contest.pages import addresses, scraped


class PlainSpider(scrapy.Spider):
    """Scrapes each page and follows its links."""

    name = "plain"

    async def start(self):
        for url in addresses(self.seeds_file):
            yield scrapy.Request(url)

    def parse(self, response):
        page = scraped(response)
        yield page
        for url in page["links"]:
            yield scrapy.Request(url)


class FixedSpider(scrapy.Spider):
    """Scrapes the pages of a list, and follows nothing."""

    name = "fixed"

    async def start(self):
        for url in addresses(self.pages_file):
            yield scrapy.Request(url, dont_filter=True)

    def parse(self, response):
        yield scraped(response)
