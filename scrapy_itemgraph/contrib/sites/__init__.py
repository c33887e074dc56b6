"""A spider for whole websites, which keeps each page as it came: archiving needs no code."""

from __future__ import annotations

from scrapy_itemgraph.contrib.sites.spider import SiteSpider

__all__ = ["SiteSpider"]
