"""Links that Scrapy leaves out because they are longer than URLLENGTH_LIMIT: how many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_itemgraph.worker import scrapy_internals
from scrapy_itemgraph.worker.executions.execution import current_leg

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

    from scrapy_itemgraph.model.tallies import Tallies


def count(crawler: Crawler, tallies: Tallies) -> None:
    """Count them, those of a claim with its execution: an attempt that is repeated has none."""

    def left_out() -> None:
        leg = current_leg.get()
        if leg is None or leg.execution.claim is None:
            tallies.long_links += 1
        else:
            leg.execution.long_links += 1

    tallies.url_limit = crawler.settings.getint("URLLENGTH_LIMIT")
    scrapy_internals.tell_of_long_links(crawler, left_out)
