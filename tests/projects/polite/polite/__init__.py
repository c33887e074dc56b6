"""A Scrapy project whose requests are counted and timed at the server."""

from __future__ import annotations
