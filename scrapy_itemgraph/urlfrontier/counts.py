"""What a server has been asked and has done since it began, as upstream's server counts it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scrapy_itemgraph.model.counts import many
from scrapy_itemgraph.model.frontier import Status
from scrapy_itemgraph.tools import logs

if TYPE_CHECKING:
    from scrapy_itemgraph.model.frontier import HandedURL, KnownURL, PutURL

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
    malformed: int = 0  # messages, and calls whose metadata is no ASCII
    unsent: int = 0  # URLs larger than what a client takes,
    last_unsent: str = ""  # the last of which is this one
    _told: int = 0  # how many of them were told that cannot be stored
    _told_malformed: int = 0  # likewise
    _told_unsent: int = 0

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

    def keep_back(self, one: HandedURL | KnownURL) -> None:
        """Count a URL that is not sent, for no client would take it."""
        self.unsent += 1
        self.last_unsent = f"{one.url:.200} of the queue {one.key:.200}"

    def tell_unusable(self) -> None:
        """Say in the log how much came in since the last time that cannot be used, or sent."""
        if self.malformed > self._told_malformed:
            logger.warning(
                "Refused as INVALID_ARGUMENT: %s that are no messages of the API, or have text "
                "that is not UTF-8, or metadata that is not ASCII",
                many(self.malformed - self._told_malformed, "request"),
            )
            self._told_malformed = self.malformed
        if self.unsent > self._told_unsent:
            logger.warning(
                "Not sent: %s of an older version with more metadata than a client takes (4 MB), "
                "such as %s; scrapy itemgraph delete URL deletes one",
                many(self.unsent - self._told_unsent, "URL"),
                self.last_unsent,
            )
            self._told_unsent = self.unsent
        unusable = self.put_urls - self.discovered - self.known
        if unusable > self._told:
            logger.warning(
                "Not stored, and acked as SKIPPED: %s without a host, with a control character or "
                "too long, or with such a key or crawl, or with more than 4 MB of metadata",
                many(unusable - self._told, "URL"),
            )
            self._told = unusable
