"""Workers that wait for work without end: what they ask the database meanwhile."""

from __future__ import annotations

import re

# Counts transactions from the seventh claim that finds nothing to the ninth: two polls, of five
# seconds each.
SPIDER = """
import logging

from scrapy_itemgraph.connections.transactions import Transactions
from scrapy_itemgraph.graph.worker_claims import WorkerClaims

answer, claim = Transactions._answer, WorkerClaims.claim
asked, in_vain = [], []


async def counted(self, function, **options):
    asked.append(function)
    return await answer(self, function, **options)


async def watched(self, budget):
    result = await claim(self, budget)
    if not (result.claims or budget.alone):
        in_vain.append(len(asked))
        if len(in_vain) == 9:
            logging.getLogger(__name__).info("TRANSACTIONS %d", in_vain[8] - in_vain[6])
    return result


Transactions._answer, WorkerClaims.claim = counted, watched


class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page"]

    def parse(self, response):
        pass
"""


def test_a_worker_that_waits_asks_the_database_about_once_a_second(project):
    """Two polls of five seconds take no more than fifteen transactions, of all kinds."""
    project.write(SPIDER, settings='ITEMGRAPH_IDLE = "wait"')
    project.start("crawl", "s")

    project.wait_for("TRANSACTIONS")

    (count,) = re.findall(r"TRANSACTIONS (\d+)", project.log())
    assert int(count) <= 15
