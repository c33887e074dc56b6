"""A project as `scrapy startproject` leaves it, fast, with two extensions that keep notes."""

from __future__ import annotations

import atexit
import gc

atexit.register(gc.freeze)  # after the next: else Python walks all that is alive as it ends
atexit.register(gc.collect)
BOT_NAME = "bookshop"
SPIDER_MODULES = ["bookshop.spiders"]
COMMANDS_MODULE = "bookshop.commands"
USER_AGENT = "bookshop"
ROBOTSTXT_OBEY = False
DOWNLOAD_DELAY = 0
CONCURRENT_REQUESTS_PER_DOMAIN = 8
FEED_EXPORT_ENCODING = "utf-8"
TELNETCONSOLE_ENABLED = False
EXTENSIONS = {
    "bookshop.extensions.SignalNotes": 0,
    "bookshop.extensions.StatsNotes": 0,
}
