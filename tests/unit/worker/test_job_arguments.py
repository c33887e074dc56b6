"""Which arguments crawls of the queue may have."""

from __future__ import annotations

import pytest
from scrapy import Spider
from scrapy.spiders import CrawlSpider

from scrapy_itemgraph.contrib.sites import SiteSpider
from scrapy_itemgraph.exceptions import ConfigurationError
from scrapy_itemgraph.model import crawl_arguments, package_spiders
from scrapy_itemgraph.worker.spider.job_arguments import (
    check_feeds,
    check_reserved,
    reserved_by,
)


class Dated(CrawlSpider):
    """A spider that has arguments of its own."""

    name = "dated"

    def __init__(self, name=None, *args, start=None, **kwargs):
        super().__init__(name, *args, **kwargs)
        self.first = start


class Later(Dated):
    """Another one, whose base takes them."""

    @classmethod
    def from_crawler(cls, crawler, *args, close=None, **kwargs):
        return super().from_crawler(crawler, *args, **kwargs)


def test_what_scrapy_has_on_a_spider_is_reserved():
    """Every attribute of `scrapy.Spider`, those that an instance gets among them, is known."""
    own = {*dir(Spider), *Spider.__annotations__, *vars(Spider("x"))} - {*dir(object)}

    assert {one for one in own if not one.startswith("__")} <= crawl_arguments.RESERVED
    assert reserved_by(Spider) == reserved_by(CrawlSpider) == crawl_arguments.RESERVED


def test_what_the_spider_itself_names_is_an_argument():
    """`start` of its `__init__` is the project's; `name` is Scrapy's all the same."""
    assert reserved_by(Dated) == crawl_arguments.RESERVED - {"start"}
    assert reserved_by(Later) == crawl_arguments.RESERVED - {"start", "close"}
    check_reserved(Dated, ["start", "category"])
    for name in ("name", "custom_settings", "__class__"):
        with pytest.raises(ConfigurationError, match=f"'{name}' would replace"):
            check_reserved(Dated, [name])


def test_spiders_of_the_package_say_which_arguments_name_files():
    """SS-3: a server without the code refuses what `site` refuses over HTTP."""
    assert SiteSpider.local_arguments == package_spiders.LOCAL_ARGUMENTS


def test_an_argument_leads_no_feed_out_of_its_folder():
    """Of the arguments those count that a feed's URI names; what begins it is one part."""
    check_feeds(["feeds/%(city)s.jl", "%(name)s.csv"], {"city": "a/b", "url": "http://x/../y"})
    for template, city in {"feeds/%(city)s.jl": "../x", "%(city)s": "proj/settings.py"}.items():
        with pytest.raises(ConfigurationError, match="would lead the feed"):
            check_feeds([template], {"city": city})
