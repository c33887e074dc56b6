"""The shapes that were proposed for version 3 of the API, and what 2.6 has besides.

The calls do what they do in version 2.6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.exceptions import InvalidDataError
from scrapy_itemgraph.urlfrontier import descriptors
from scrapy_itemgraph.urlfrontier.codec import LEVELS, Codec, counts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy_itemgraph.model.frontier import HandedURL, KnownURL, Stats, Status
    from scrapy_itemgraph.urlfrontier.puts import Item

API = descriptors.load("urlfrontier_v3", "urlfrontier.v3.URLFrontier")
# The package that the proposal shares with version 2.6, so that a port speaks one of both there.
PROPOSED_PACKAGE = "urlfrontier"


class V3(Codec):
    """Reads and writes its messages: each call has its own."""

    CRAWL = "crawl_id"
    NAME = "id"
    IGNORE_CASE = "ignore_case"
    WHICH = "crawl"

    def item(self, message: Any) -> Item:
        """Read an item of PutURLs; a URL alone was discovered."""
        if message.HasField("item"):
            return self.url_item(message.item)
        return self.info_item(message.url.url, message.url, None)

    def deleted_crawl(self, message: Any) -> str:
        """Return the crawl that DeleteCrawl names."""
        return self.crawl(message)

    def blocked_until(self, message: Any) -> int:
        """Return until when BlockQueueUntil blocks, in seconds; 0: it ends the block."""
        return max(0, int(message.time.seconds))

    def log_level(self, message: Any) -> int | None:
        """Return a level of Python's `logging`; None for a number that is no level.

        Raises:
            InvalidDataError: no level is said.

        """
        if not message.level:
            raise InvalidDataError("say a level of logs: LEVEL_TRACE to LEVEL_ERROR")
        return LEVELS[message.level - 1] if 0 < message.level <= len(LEVELS) else None

    def handed(self, one: HandedURL) -> Any:
        """Write a URL as GetURLs gives it."""
        return self._answer("GetURLs", url=self.info(one))

    def listed(self, method: str, one: KnownURL) -> Any:
        """Write a URL as GetURLStatus and ListURLs give it."""
        return self._answer(method, url=self.known(one))

    def ack(self, name: str, status: Status) -> Any:
        """Write the answer to an item of PutURLs."""
        return self._answer("PutURLs", ack=self._ack(id=name, status=status + 1))

    def batch_ack(self, name: str, statuses: Iterable[Status]) -> Any:
        """Write the answer to a batch of PutDiscovered."""
        return self._answer("PutDiscovered", id=name, statuses=[one + 1 for one in statuses])

    def stats(self, crawl: str, one: Stats) -> Any:
        """Write counts of a queue or a crawl."""
        return self._answer(
            "GetStats",
            size=one.size,
            in_process=one.in_process,
            counts=counts(one),
            number_of_queues=one.queues,
            crawl_id=crawl,
        )

    def count(self, value: int) -> Any:
        """Write the answer to CountURLs."""
        return self._answer("CountURLs", count=value)

    def removed(self, method: str, number: int) -> Any:
        """Write how many URLs a method removed; it is said also where it is 0."""
        return self._answer(method, urls_removed={"value": number})

    def is_active(self, value: bool) -> Any:
        """Write the answer to GetActive; it is said also where it is false."""
        return self._answer("GetActive", state={"value": value})


CODEC = V3(API)
