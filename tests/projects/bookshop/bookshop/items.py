"""Scraped items of every kind that Scrapy takes."""

from __future__ import annotations

from dataclasses import dataclass, field

import attrs
import scrapy


class Book(scrapy.Item):
    title = scrapy.Field()
    url = scrapy.Field()


@dataclass
class Author:
    name: str
    books: list = field(default_factory=list)


@attrs.define
class Publisher:
    name: str


class Pamphlet:
    """An object like any other."""
