"""Settings of every crawl of this project; what a proof is about comes by `-s`."""

from __future__ import annotations

import atexit
import gc
import os

from scrapy.settings.default_settings import EXTENSIONS_BASE as _STOCK

gc.set_threshold(10_000, 20, 50)
atexit.register(gc.freeze)  # after the next: else Python walks all that is alive as it ends
atexit.register(gc.collect)
EXTENSIONS_BASE = {name: order for name, order in _STOCK.items() if not name.endswith("Control")}
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
