"""A Scrapy project that crawls the manuals of Python and PostgreSQL."""

from __future__ import annotations
