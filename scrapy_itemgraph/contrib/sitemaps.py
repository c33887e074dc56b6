"""A `SitemapSpider` that fetches a page again if its `lastmod` is later than its result."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from scrapy import spiders
from w3lib.url import safe_url_string

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from scrapy import Request
    from scrapy.http import Response

__all__ = ["SitemapSpider"]

DAY = timedelta(days=1)
_LONGEST_DATE = 10  # characters
_AT_ONCE = timedelta(seconds=60)
_FEWEST = 10  # entries that say something about how a sitemap was made


class SitemapSpider(spiders.SitemapSpider):
    """Scrapy's `SitemapSpider`; the `lastmod` of a page says until when a result of it is old.

    A sitemap whose `lastmod`s are all of the moment at which it was made says nothing of its pages,
    so these are ignored.
    """

    def _parse_sitemap(self, response: Response) -> Iterable[Request]:
        """Yield Scrapy's requests, each with the moment at which its page changed."""
        changed: dict[str, datetime] = {}  # by URL; filled while Scrapy reads the sitemap
        self.sitemap_filter = partial(self._noted, response, changed)  # type: ignore[method-assign]
        for request in super()._parse_sitemap(response):
            moment = changed.get(request.url)
            if moment is not None:
                request.meta["itemgraph_changed_at"] = moment
            yield request
        changed.clear()

    def _noted(
        self, response: Response, changed: dict[str, datetime], sitemap: Any
    ) -> Iterator[dict[str, Any]]:
        """Yield the entries that the spider's own filter lets pass; note when they changed."""
        entries: list[dict[str, Any]] = list(sitemap)
        stats: Any = self.crawler.stats
        now = datetime.now(UTC)
        started = stats.get_value("start_time", now)
        has_hints = getattr(sitemap, "type", None) == "urlset"
        lastmods = [entry["lastmod"] for entry in entries if has_hints and "lastmod" in entry]
        moments = [one for one in (read(one, started) for one in lastmods) if one is not None]
        if are_stamped(moments, now):
            has_hints = False
            if not stats.get_value("itemgraph/sitemaps_stamped"):
                self.logger.warning(
                    "%s: its %d lastmods are all of one moment, %s, so they say when the sitemap "
                    "was made and not when pages changed. They are ignored: of its pages only new "
                    "ones are fetched, and those that are due. itemgraph/sitemaps_stamped counts "
                    "such sitemaps; this is said of the first one",
                    response,
                    len(lastmods),
                    lastmods[0],
                )
            stats.inc_value("itemgraph/sitemaps_stamped")
        for entry in type(self).sitemap_filter(self, entries):
            lastmod = entry.get("lastmod") if has_hints else None
            if lastmod is not None:
                moment = read(lastmod, started)
                if moment is None:
                    stats.inc_value("itemgraph/changed_at_ignored")
                else:
                    others = entry.get("alternate", ()) if self.sitemap_alternate_links else ()
                    for url in (entry["loc"], *others):
                        changed[safe_url_string(url)] = moment
            yield entry


def read(lastmod: str, started: datetime) -> datetime | None:
    """Return the latest moment of a change; None if `lastmod` has no day.

    A date means until the end of that day in UTC. While the day is not over, that is until the
    crawl `started`: what it fetched itself is new enough.
    """
    try:
        moment = datetime.fromisoformat(lastmod)
        if len(lastmod) <= _LONGEST_DATE:
            day = moment.replace(tzinfo=UTC)
            return min(day + DAY, max(day, started))
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        return None


def are_stamped(moments: Sequence[datetime], fetched: datetime) -> bool:
    """Tell whether a sitemap's `lastmod`s say when it was made, at most a day before a moment."""
    if len(moments) < _FEWEST:
        return False
    first, last = min(moments), max(moments)
    return last - first <= _AT_ONCE and abs(fetched - last) <= DAY
