"""What all contestants share; the rest comes by `-s`."""

from __future__ import annotations

BOT_NAME = "contest"
SPIDER_MODULES = ["contest.plain_spiders"]
ADDONS: dict = {}
EXTENSIONS = {"contest.cost.Cost": 0}
CONCURRENT_REQUESTS = 32
CONCURRENT_REQUESTS_PER_DOMAIN = 32
CONCURRENT_ITEMS = 16
DOWNLOAD_DELAY = 0
ROBOTSTXT_OBEY = False
TELNETCONSOLE_ENABLED = False
LOG_LEVEL = "INFO"
ITEMGRAPH_TUNE_GC = False  # `contest.cost` does it, for everybody alike
