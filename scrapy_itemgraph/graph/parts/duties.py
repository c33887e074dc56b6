"""`graph.duties`: what a process does by the minute for the whole database."""

from __future__ import annotations

import time
from functools import cached_property
from typing import TYPE_CHECKING

from scrapy_itemgraph.graph import duty_log
from scrapy_itemgraph.store.registry import duties

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from scrapy_itemgraph.connections.transactions import BlockingTransactions
    from scrapy_itemgraph.store.registry.duties import Duty, Round, Timetable


class Duties:
    """Prunes, and does what is due of crawls that nobody runs, as workers do."""

    def __init__(self, transactions: BlockingTransactions) -> None:
        self._transactions = transactions

    @cached_property
    def _timetable(self) -> Timetable:
        return duties.Timetable(duties.OF_DATABASE)

    def may(self) -> bool:
        """Tell whether the role and the server let this process do duties."""
        return self._transactions.call(duties.may)

    def do_due(self) -> bool:
        """Do a step of each duty that is due; tell whether there may be more to do at once."""
        rounds = []
        for duty in self._timetable.due(time.monotonic()):
            began = time.monotonic()
            done = self._do(duty)
            self._timetable.did(duty, done, began=began, now=time.monotonic())
            rounds.append(done)
        duty_log.tell(rounds)
        return any(one.has_more for one in rounds)

    def _do(self, duty: Duty) -> Round:
        def within(connection: Connection) -> Round:
            done = duties.Round()
            duties.do(connection, [duty], done)
            return done

        return self._transactions.call(within)
