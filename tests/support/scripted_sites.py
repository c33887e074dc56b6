"""A site that answers by a script, and fingerprints of its pages."""

from __future__ import annotations

from scrapy import Request
from scrapy.utils.request import fingerprint


def fp(site, path):
    """Return the fingerprint of a path of the site."""
    return fingerprint(Request(site.url + path)).hex()


DROPS = """
class S(scrapy.Spider):
    name = "s"

    @classmethod
    def from_crawler(cls, crawler, *args, **kwargs):
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.dropped, signal=scrapy.signals.request_dropped)
        return spider

    def dropped(self, request, spider):
        self.logger.info(f"DROPPED {request.url.removeprefix(SITE)}.")

"""
