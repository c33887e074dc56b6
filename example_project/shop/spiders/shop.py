"""A crawl of the tea shop, to read: each recipe of an item graph in its shortest form."""

# ruff: noqa: ARG002 (callbacks take what they are given)

from __future__ import annotations

import hashlib

import scrapy

from scrapy_itemgraph import (
    AddTag,
    CreateAlias,
    CreateItem,
    DeleteItem,
    Expire,
    MergeItem,
    RemoveTag,
    RenameItem,
    UpdateData,
    UpdateMetadata,
    task,
)

GONE = 410


class ShopSpider(scrapy.Spider):
    name = "shop"
    site = "http://127.0.0.1:8765"  # -a site=…

    def seeds(self):
        """Recipe: where a crawl begins. Yielded at each start; what exists is left alone."""
        yield CreateItem(id="SHOP:tea", tags=["shop"], data={"url": f"{self.site}/"})
        # A customer's wish: we know the EAN and nothing else. No task is called for by "wanted".
        yield CreateItem(id="EAN:4012345010350", tags=["wanted"], data={"wanted_by": "Ada"})

    @task(tags=["shop"], ttl="7d")
    def parse_shop(self, response, item):
        """Recipe: discover items. A name that is taken makes CreateItem do nothing."""
        for link in response.css("a.category"):
            name, url = link.css("::text").get(), response.urljoin(link.attrib["href"])
            yield CreateItem(id=f"CATEGORY:{name}", tags=["category"], data={"url": url})

    @task(tags=["category"], ttl="6h")
    async def parse_category(self, response, item):
        visit = (await item.get_metadata() or {}).get("visit", 0) + 1
        yield UpdateMetadata({"visit": visit})
        for operation in self.listing(response, item.id, visit):
            yield operation

    @task(tags=["page"])
    def parse_page(self, response, item):
        """Recipe: ephemeral items. The page goes; its name stays taken, for links back to it."""
        yield from self.listing(response, item.data["category"], item.data["visit"])
        yield DeleteItem(forget=False)

    def listing(self, response, category, visit):
        """Find products, and this visit's further pages."""
        for url in map(response.urljoin, response.css("a.product::attr(href)").getall()):
            # Recipe: credit the category, so that the page between can go.
            yield CreateItem(
                id=f"URL:{url}", tags=["product"], data={"url": url}, created_by=category
            )
        for url in map(response.urljoin, response.css("a.page::attr(href)").getall()):
            data = {"url": url, "category": category, "visit": visit}
            yield CreateItem(id=f"PAGE:{url}#visit-{visit}", tags=["page"], data=data)

    def product_request(self, item):
        """Let the answer "410 Gone" through to the callback; other errors are failures."""
        return scrapy.Request(item.data["url"], meta={"handle_httpstatus_list": [GONE]})

    @task(tags=["product"], version="1", ttl="1d", request="product_request")
    async def parse_product(self, response, item):
        if response.status == GONE:
            # Recipe: something is gone. Its tasks no longer apply; what we knew of it stays.
            yield RemoveTag("product")
            yield AddTag("gone")
            return
        if moved := response.css("a.moved::attr(href)").get():
            for operation in self.duplicate(item, response.urljoin(moved)):
                yield operation
            return
        if response.css(".updating"):
            # Recipe: expire the own result. We came at a bad time: once more, after the rest.
            yield Expire()
            return

        # Recipe: a better id, and merging what turns out to be the same. We came by a URL; if the
        # SKU is known already, from another URL, the two become one item with both URLs as aliases.
        sku = f"SKU:{response.css('.sku::text').get()}"
        yield RenameItem(to=sku, if_taken="merge")
        # Recipe: take in an item found earlier (the customer's wish): its data where we have none,
        # its tags, and its name as one more alias.
        ean = f"EAN:{response.css('.ean::text').get()}"
        if await item.get_item(ean):
            yield MergeItem(id=ean, into=sku, merge=lambda ours, wish: {**wish, **ours})
        yield CreateAlias(ean)

        price = float(response.css(".price::text").get().removeprefix("€"))
        yield UpdateData(
            {
                "url": response.urljoin(response.css("link[rel=canonical]::attr(href)").get()),
                "name": response.css("h1::text").get(),
                "price": price,
                "stock": int(response.css(".stock::text").get()),
                "reviews_url": response.urljoin(response.css("a.reviews::attr(href)").get()),
                "photo_url": response.urljoin(response.css("img.photo::attr(src)").get()),
            }
        )
        # Recipe: metadata, for what one task keeps for itself: here the history of the price.
        yield UpdateMetadata(lambda old: {"prices": with_price(old.get("prices", []), price)})
        # Recipe: expire another task's result upon a discovery: a new price brings new reviews …
        if item.data.get("price", price) != price:
            yield Expire(task="parse_reviews")
        # … or always: the card shows data from here, so it is made anew after each visit.
        yield Expire(task="make_card")

    def duplicate(self, item, url):
        """Recipe: we are a duplicate. Update the other item, delete this one, leave its name."""
        yield CreateItem(id=f"URL:{url}", tags=["product"], data={"url": url})  # if not yet known
        yield UpdateData({"old_url": item.data["url"]}, id=f"URL:{url}")
        yield DeleteItem()
        yield CreateAlias(item.id, to=f"URL:{url}")

    def reviews_request(self, item):
        return scrapy.Request(item.data["reviews_url"])

    @task(tags=["product"], ttl="3d", depends_on=["parse_product"], request="reviews_request")
    def parse_reviews(self, response, item):
        """Recipe: a task that depends on another, with a time to live of its own."""
        stars = [int(text) for text in response.css(".stars::text").getall()]
        yield UpdateMetadata({"reviews": len(stars), "stars": sum(stars) / len(stars)})
        yield Expire(task="make_card")

    def photo_request(self, item):
        return scrapy.Request(item.data["photo_url"])

    @task(tags=["product"], ttl="never", depends_on=["parse_product"], request="photo_request")
    def fetch_photo(self, response, item):
        digest = hashlib.sha256(response.body).hexdigest()
        yield UpdateMetadata({"bytes": len(response.body), "sha256": digest})

    @task(tags=["product"], depends_on=["parse_product", "parse_reviews"], download=False)
    async def make_card(self, response, item):
        """Recipe: work without a download, and a scraped item for the project's feeds."""
        reviews = await item.get_metadata("parse_reviews")
        facts = {key: item.data[key] for key in ("name", "price", "stock")}
        yield {"id": item.id, **facts, **reviews}


def with_price(prices, price):
    return prices if prices[-1:] == [price] else [*prices, price]
