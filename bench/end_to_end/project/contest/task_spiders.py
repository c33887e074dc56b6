"""The spider with a task."""

from __future__ import annotations

import scrapy

from contest.pages import addresses, scraped
from scrapy_itemgraph import CreateItem, UpdateData, UpdateMetadata, task


class TaskSpider(scrapy.Spider):
    """Keeps of each page what the others scrape, and creates an item for each link."""

    name = "task"

    def seeds(self):
        for url in addresses(self.seeds_file):
            yield CreateItem(id=url, tags=["page"], data={"url": url})

    @task(tags=["page"], ttl="7d")
    def parse_page(self, response, item):
        page = scraped(response)
        for url in page["links"]:
            yield CreateItem(id=url, tags=["page"], data={"url": url})
        yield UpdateData({"title": page["title"], "links": page["links"]})
        yield UpdateMetadata({"headings": page["headings"]})
