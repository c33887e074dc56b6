from __future__ import annotations

BOT_NAME = "shop"
SPIDER_MODULES = ["shop.spiders"]
NEWSPIDER_MODULE = "shop.spiders"

# The one line that makes the crawl durable. No ITEMGRAPH_DATABASE_URL: PostgreSQL is started
# under .scrapy/itemgraph, beside scrapy.cfg.
ADDONS = {"scrapy_itemgraph.Addon": 500}

# A start with other arguments is a crawl of its own; where the shop stands makes none.
ITEMGRAPH_IGNORED_ARGUMENTS = ["site"]

ROBOTSTXT_OBEY = True
DOWNLOAD_DELAY = 0  # the site is our own and local; give a real one a second or more
TELNETCONSOLE_ENABLED = False
LOG_LEVEL = "INFO"
