"""Settings of every crawl of this project; what a proof is about comes by `-s`."""

from __future__ import annotations

import os

BOT_NAME = "polite"
SPIDER_MODULES = ["polite.spiders"]
ADDONS = {"scrapy_itemgraph.Addon": 500}
TELNETCONSOLE_ENABLED = False
LOG_LEVEL = "INFO"
ROBOTSTXT_OBEY = False
RANDOMIZE_DOWNLOAD_DELAY = False
DOWNLOAD_DELAY = 0
CONCURRENT_REQUESTS_PER_DOMAIN = 8
CONCURRENT_ITEMS = 16
if os.environ.get("ITEMGRAPH_TEST_REACTORLESS") == "1":
    TWISTED_REACTOR_ENABLED = False
