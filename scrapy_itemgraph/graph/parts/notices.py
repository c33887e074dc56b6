"""`graph.notices`: what people are told of crawls and runners."""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING

from scrapy_itemgraph.channels import sending
from scrapy_itemgraph.graph import notice_delivery
from scrapy_itemgraph.graph.notice_delivery import Timing
from scrapy_itemgraph.store.admin import notice_lists

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy_itemgraph.channels.channel import Channels
    from scrapy_itemgraph.graph.crawl_transactions import CrawlTransactions
    from scrapy_itemgraph.model.notices import Answer
    from scrapy_itemgraph.store.admin.notice_lists import NoticeLine


class Notices:
    """The notices of the database, over all projects and crawls.

    What is sent, and where, are settings of a project: its `Channels`.
    """

    def __init__(self, transactions: CrawlTransactions) -> None:
        self._transactions = transactions

    @cached_property
    def _timing(self) -> Timing:
        return Timing()

    def list(
        self, *, crawl: str | None = None, before: int | None = None, limit: int = 50
    ) -> list[NoticeLine]:
        """Return notices, the newest first: those of a crawl; `before` is the last number seen."""
        within = partial(notice_lists.notices, crawl=crawl, before=before, limit=limit)
        return self._transactions.call(within)

    def test(self, channels: Channels, *, by: str) -> Sequence[Answer]:
        """Send a test by each channel now, within a minute; return what each answered.

        Nothing of it is stored.
        """
        return sending.send_test(channels, by)

    def deliver(self, channels: Channels) -> float:
        """Send some of what is due; return in how many seconds to look again, 0: at once.

        Each minute it writes what lasts: that nothing is done in a crawl, or too much fails.
        """
        self._timing.put_off()
        watches = self._timing.watches(channels)
        claimed, processes = self._transactions.call(
            partial(notice_delivery.look, channels=channels, watches=watches)
        )
        self._timing.looked(processes, found=bool(claimed))
        if claimed:
            answers = sending.send(channels, claimed)
            noted = partial(notice_delivery.note, notices=claimed, answers=answers)
            notice_delivery.tell(claimed, answers, self._transactions.call(noted))
        return self._timing.pause
