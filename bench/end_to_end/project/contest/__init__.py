"""The Scrapy project that all contestants crawl with."""

from __future__ import annotations
