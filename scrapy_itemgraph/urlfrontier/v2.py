"""Version 2.6 of the API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.model.frontier import crawl_of
from scrapy_itemgraph.urlfrontier import descriptors
from scrapy_itemgraph.urlfrontier.codec import LEVELS, Codec, counts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy_itemgraph.model.frontier import HandedURL, KnownURL, Stats, Status
    from scrapy_itemgraph.urlfrontier.puts import Item

API = descriptors.load("urlfrontier", "urlfrontier.URLFrontier")


class V2(Codec):
    """Reads and writes its messages; what they have in common several calls share."""

    CRAWL = "crawlID"
    NAME = "ID"
    IGNORE_CASE = "ignoreCase"
    WHICH = "item"

    def item(self, message: Any) -> Item:
        """Read an item of PutURLs."""
        return self.url_item(message)

    def deleted_crawl(self, message: Any) -> str:
        """Return the crawl that DeleteCrawl names."""
        return crawl_of(message.value)

    def blocked_until(self, message: Any) -> int:
        """Return until when BlockQueueUntil blocks, in seconds; 0: it ends the block."""
        return int(message.time)

    def log_level(self, message: Any) -> int | None:
        """Return a level of Python's `logging`; None for a number that is no level."""
        return LEVELS[message.level] if 0 <= message.level < len(LEVELS) else None

    def handed(self, one: HandedURL) -> Any:
        """Write a URL as GetURLs gives it."""
        return self.info(one)

    def listed(self, method: str, one: KnownURL) -> Any:  # noqa: ARG002
        """Write a URL as GetURLStatus and ListURLs give it."""
        return self.known(one)

    def ack(self, name: str, status: Status) -> Any:
        """Write the answer to an item of PutURLs."""
        return self._ack(ID=name, status=int(status))

    def batch_ack(self, name: str, statuses: Iterable[Status]) -> Any:
        """Write the answer to a batch of PutDiscovered."""
        return self._answer("PutDiscovered", ID=name, statuses=map(int, statuses))

    def stats(self, crawl: str, one: Stats) -> Any:
        """Write counts of a queue or a crawl."""
        return self._answer(
            "GetStats",
            size=one.size,
            inProcess=one.in_process,
            counts=counts(one),
            numberOfQueues=one.queues,
            crawlID=crawl,
        )

    def count(self, value: int) -> Any:
        """Write the answer to CountURLs."""
        return self._answer("CountURLs", value=value)

    def removed(self, method: str, number: int) -> Any:
        """Write how many URLs a method removed."""
        return self._answer(method, value=number)

    def is_active(self, value: bool) -> Any:
        """Write the answer to GetActive."""
        return self._answer("GetActive", state=value)


CODEC = V2(API)
