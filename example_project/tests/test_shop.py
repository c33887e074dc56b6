"""The spider on saved pages: `python -m pytest`, in the directory above."""

from __future__ import annotations

from pathlib import Path

import pytest
from scrapy.http import HtmlResponse
from shop.spiders.shop import ShopSpider

from scrapy_itemgraph import AddTag, CreateAlias, CreateItem, DeleteItem, Expire, RemoveTag
from scrapy_itemgraph.testing import run_task

PAGES = Path(__file__).parent / "pages"
SHOP = "http://shop.example"
BEANS = f"{SHOP}/product/island-beans-500-g"


def run_product(page, data=None, **given):
    item = CreateItem(f"URL:{BEANS}", tags=["product"], data={"url": BEANS, **(data or {})})
    return run_task(ShopSpider, "parse_product", page=page, item=item, **given)


def test_a_category_yields_products_and_its_further_pages():
    ran = run_task(
        ShopSpider,
        "parse_category",
        page=PAGES / "category.html",
        item=CreateItem("CATEGORY:coffee", data={"url": f"{SHOP}/category/coffee"}),
        metadata={"parse_category": {"visit": 3}},
    )

    assert ran.error is None
    assert ran.after(f"URL:{BEANS}").tags == {"product": None}
    page = ran.after(f"PAGE:{SHOP}/category/coffee?page=2#visit-4")
    assert page.data["category"] == "CATEGORY:coffee"
    assert ran.item.results["parse_category"].metadata == {"visit": 4}


def test_a_page_goes_and_the_category_has_the_credit():
    data = {"url": f"{SHOP}/category/coffee?page=1", "category": "CATEGORY:coffee", "visit": 1}

    ran = run_task(
        ShopSpider,
        "parse_page",
        page=PAGES / "category.html",
        item=CreateItem("PAGE:1", data=data),
        given=[CreateItem("CATEGORY:coffee", tags=["category"])],
    )

    assert ran.operations[-1] == DeleteItem(forget=False)
    assert ran.item is None
    assert ran.after(f"URL:{BEANS}").created_by == "CATEGORY:coffee"


def test_a_product_gets_its_sku_and_what_the_page_says():
    ran = run_product(PAGES / "product.html")

    assert ran.error is None
    item = ran.item
    assert item.id == "SKU:T1020"
    assert set(item.aliases) == {f"URL:{BEANS}", "EAN:4012345010206"}
    assert (item.data["name"], item.data["price"]) == ("Island beans, 500 g", 11.4)
    assert item.data["photo_url"] == f"{SHOP}/images/T1020.svg"
    assert item.results["parse_product"].metadata == {"prices": [11.4]}
    assert sorted(item.work) == ["fetch_photo", "parse_reviews"]


def test_a_wish_for_a_product_is_taken_in():
    wish = CreateItem("EAN:4012345010206", tags=["wanted"], data={"wanted_by": "Ada"})

    ran = run_product(PAGES / "product.html", given=[wish])

    assert ran.item.data["wanted_by"] == "Ada"
    assert set(ran.item.tags) == {"product", "wanted"}


def test_a_new_price_brings_new_reviews():
    ran = run_product(
        PAGES / "product.html",
        {"price": 9.0},
        metadata={"parse_product": {"prices": [9.0]}, "parse_reviews": {"stars": 4}},
    )

    assert Expire(task="parse_reviews") in ran.operations
    assert ran.item.results["parse_product"].metadata == {"prices": [9.0, 11.4]}
    assert ran.item.results["parse_reviews"].state == "stale"


def test_a_product_that_is_gone():
    ran = run_product(HtmlResponse(BEANS, status=410))

    assert ran.operations == [RemoveTag("product"), AddTag("gone")]
    assert not ran.item.work


def test_a_page_that_only_says_which_article_replaced_it():
    ran = run_product(PAGES / "moved.html")

    new = f"URL:{SHOP}/product/mint-tea-100-g"
    assert ran.operations[-1] == CreateAlias(f"URL:{BEANS}", to=new)
    assert ran.item.id == new  # by its alias
    assert ran.item.data["old_url"] == BEANS


@pytest.mark.parametrize(("page", "outcome"), [("updating.html", "ok"), ("broken.html", "failed")])
def test_a_product_without_a_price(page, outcome):
    ran = run_product(PAGES / page)

    assert ran.outcome == outcome
    if outcome == "ok":
        assert ran.operations == [Expire()]
        assert list(ran.item.work) == ["parse_product"]
    else:
        assert ran.error.message == "could not convert string to float: ' ask us'"
        assert ran.item.results["parse_product"].state == "held"


def test_a_card_has_what_other_tasks_found():
    item = CreateItem("SKU:1", data={"name": "Beans", "price": 11.4, "stock": 3})

    ran = run_task(
        ShopSpider,
        "make_card",
        item=item,
        metadata={"parse_product": {}, "parse_reviews": {"reviews": 2, "stars": 4.5}},
    )

    card = {"id": "SKU:1", "name": "Beans", "price": 11.4, "stock": 3, "reviews": 2, "stars": 4.5}
    assert ran.items == [card]


def test_reviews_are_counted():
    url = f"{SHOP}/reviews/T1019"

    ran = run_task(
        ShopSpider,
        "parse_reviews",
        page=PAGES / "reviews.html",
        item=CreateItem("SKU:T1019", data={"reviews_url": url}),
    )

    assert ran.item.results["parse_reviews"].metadata == {"reviews": 4, "stars": 2.75}
