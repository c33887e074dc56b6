"""Settings of both contestants: the same, but for the add-on."""

from __future__ import annotations

BOT_NAME = "manuals"
SPIDER_MODULES = ["manuals.spiders"]
ADDONS = {"scrapy_itemgraph.Addon": 500}
ITEMGRAPH_IGNORED_ARGUMENTS = ["site"]
TELNETCONSOLE_ENABLED = False
LOG_LEVEL = "INFO"
CONCURRENT_ITEMS = 16
CONCURRENT_REQUESTS_PER_DOMAIN = 16
