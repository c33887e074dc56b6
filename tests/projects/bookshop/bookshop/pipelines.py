"""Pipelines that change, replace, drop and fail."""

from __future__ import annotations

import asyncio
import os

from itemadapter import ItemAdapter
from scrapy import Request
from scrapy.exceptions import DropItem
from scrapy.http.request import NO_CALLBACK
from scrapy.pipelines.files import FilesPipeline

from bookshop.notes import show, write


class Prices:
    """Adds a price."""

    def process_item(self, item):
        adapter = ItemAdapter(item)
        adapter["price"] = len(adapter["title"])
        return item


class Dropper:
    """Drops one book, and fails with another."""

    def process_item(self, item):
        title = ItemAdapter(item)["title"]
        if title.endswith("2"):
            raise DropItem("sold out")
        if title.endswith("3"):
            raise ValueError("torn")
        return item


class Covers:
    """Fetches a page for each item, as Scrapy's documentation does for screenshots."""

    @classmethod
    def from_crawler(cls, crawler):
        pipeline = cls()
        pipeline.crawler = crawler
        return pipeline

    async def process_item(self, item):
        url = f"{os.environ['SITE']}/file/cover?{item['title'][-1]}"
        response = await self.crawler.engine.download_async(Request(url, callback=NO_CALLBACK))
        item["cover"] = response.body
        return item


class Binder:
    """Returns another object, a little later."""

    async def process_item(self, item):
        await asyncio.sleep(0)
        return {"bound": dict(item)}


class Inventory:
    """Notes the items at the end of the line, and how it was opened and closed."""

    def open_spider(self):
        write("pipeline", "open_spider")

    def close_spider(self):
        write("pipeline", "close_spider")

    def process_item(self, item):
        write("pipeline", "process_item", item=show(item))
        return item


class Downloads(FilesPipeline):
    """Stores files under the names that they have."""

    def file_path(self, request, response=None, info=None, *, item=None):
        return request.url.rpartition("/")[-1]
