"""What a server has been asked and has done since it began, as upstream's server counts it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scrapy_itemgraph.model.counts import many
from scrapy_itemgraph.model.frontier import Status
from scrapy_itemgraph.tools import logs

if TYPE_CHECKING:
    from scrapy_itemgraph.model.frontier import PutURL

logger = logs.logger(__name__)


@dataclass(slots=True)
class Counts:
    """Numbers that only grow. They are changed and read on the event loop, so nothing is locked.

    `put_urls` are all URLs that came in; those without a queue, which cannot be stored, are neither
    `discovered` nor `known`. `ignored` were discovered and are known already; `completed` are known
    and never fetched again. `get_seconds` lasts until the last URL of a call is sent.
    """

    get_calls: int = 0
    get_urls: int = 0
    get_seconds: float = 0.0
    put_calls: int = 0
    put_batch_calls: int = 0
    put_urls: int = 0
    discovered: int = 0
    known: int = 0
    ignored: int = 0
    completed: int = 0
    _told: int = 0  # how many of them were told that cannot be stored

    def take(self, put: PutURL | None) -> None:
        """Count a URL that came in; None: it cannot be stored."""
        self.put_urls += 1
        if put is None:
            return
        if put.refetchable_from is None:
            self.discovered += 1
        else:
            self.known += 1

    def store(self, put: PutURL, status: Status) -> None:
        """Count what became of a URL."""
        if put.refetchable_from is None:
            self.ignored += status is Status.SKIPPED
        elif put.refetchable_from == 0:
            self.completed += status is Status.OK

    def tell_unusable(self) -> None:
        """Say in the log how many URLs came in since the last time that cannot be stored."""
        unusable = self.put_urls - self.discovered - self.known
        if unusable > self._told:
            logger.warning(
                "Not stored, and acked as SKIPPED: %s without a host, with a control character or "
                "too long, or with such a key or crawl",
                many(unusable - self._told, "URL"),
            )
            self._told = unusable
