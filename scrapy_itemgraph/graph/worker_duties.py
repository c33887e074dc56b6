"""What a worker does by the minute: duties of the whole database, and of its crawl."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING

from scrapy_itemgraph.graph import duty_log
from scrapy_itemgraph.store.registry import duties

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from scrapy_itemgraph.connections.transactions import Transactions
    from scrapy_itemgraph.settings import Settings
    from scrapy_itemgraph.store.registry.duties import Duty, Round


_LONGEST = 0.3  # seconds of duties in a round; claims and commits need the connection


class WorkerDuties:
    """Does the duties that are due, each in a transaction of its own."""

    def __init__(self, transactions: Transactions, settings: Settings) -> None:
        self._call = transactions.call
        self._crawl_id = transactions.crawl_id
        keeps = settings.scraped_items.keep_items
        self._keeps = keeps if isinstance(keeps, timedelta) else None
        self._timetable = duties.Timetable(duties.OF_WORKER)

    async def do_due(self) -> None:
        """Do steps of due duties for 0.3 s at most; the next round does the others first."""
        rounds: list[Round] = []
        first = time.monotonic()
        for duty in self._timetable.due(first):
            began = time.monotonic()
            if began - first > _LONGEST:
                break
            done = await self._call(self._do, duty)
            self._timetable.did(duty, done, began=began, now=time.monotonic())
            rounds.append(done)
        duty_log.tell(rounds)

    def _do(self, connection: Connection, duty: Duty) -> Round:
        done = duties.Round(crawl_id=self._crawl_id, keeps=self._keeps)
        duties.do(connection, [duty], done)
        return done
