"""Scraped items, made again from what the journal kept of them."""

from __future__ import annotations

from dataclasses import dataclass, field

import attrs
import scrapy

from scrapy_itemgraph.feed_exports import scraped


@dataclass
class Product:
    """A dataclass that takes no such values any more."""

    name: str
    tags: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Refuse all."""
        raise AssertionError


@attrs.frozen
class Price:
    """An attrs class that is frozen."""

    amount: int


class Review(scrapy.Item):
    """An item of Scrapy's own."""

    stars = scrapy.Field(serializer=str)


def path(kind: type) -> str:
    """Return the path that the journal knows a class by."""
    return f"{kind.__module__}.{kind.__qualname__}"


def test_items_come_back_as_what_they_were():
    """Dicts, dataclasses, attrs classes and Scrapy's items are made without their `__init__`."""
    product = scraped.item_of(path(Product), {"name": "tea", "tags": ["a"]})
    price = scraped.item_of(path(Price), {"amount": 3})
    review = scraped.item_of(path(Review), {"stars": 5})

    assert isinstance(product, Product)
    assert (product.name, product.tags) == ("tea", ["a"])
    assert price == Price(3)
    assert review == Review(stars=5)
    assert isinstance(review, Review)
    assert scraped.item_of("dict", {"a": 1}) == {"a": 1}


def test_items_of_classes_that_are_gone_come_back_as_dicts():
    """A class that no loaded module has leaves the fields; nothing is imported for it."""
    assert scraped.item_of("nowhere.to.be.Found", {"a": 1}) == {"a": 1}
    assert scraped.item_of("this.Found", {"a": 1}) == {"a": 1}


def test_fields_that_a_class_no_longer_has_leave_the_rest_as_it_is():
    """An item with a field that was removed since keeps it, as a dict."""
    assert scraped.item_of(path(Review), {"stars": 5, "gone": 1}) == {"stars": 5, "gone": 1}
