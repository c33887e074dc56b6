"""The spiders that come with the package: their names, and where their classes are.

A project's own spider of the same name is meant before ours.
"""

from __future__ import annotations

SPIDERS: dict[str, str] = {"site": "scrapy_itemgraph.contrib.sites.SiteSpider"}
"""The import path of each spider's class, by its name."""

LOCAL_ARGUMENTS = frozenset({"urls"})
"""Arguments of these spiders that name a file on the host, and so are refused over HTTP."""
