"""What a server of the URL frontier does by the second: duties of the whole database."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from scrapy_itemgraph.graph import duty_log
from scrapy_itemgraph.store.registry import duties

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from scrapy_itemgraph.connections.transactions import Transactions
    from scrapy_itemgraph.store.registry.duties import Duty, Round


class FrontierUpkeep:
    """Does the duties that are due, each in a transaction of its own."""

    def __init__(self, transactions: Transactions) -> None:
        self._call = transactions.call
        self._timetable = duties.Timetable(duties.OF_DATABASE)
        self._may: bool | None = None  # as it is asked for the first time

    async def do_due(self) -> None:
        """Do a step of each duty that is due, if the database's role may."""
        if self._may is None:
            self._may = await self._call(duties.may)
        if not self._may:
            return
        rounds = []
        for duty in self._timetable.due(time.monotonic()):
            began = time.monotonic()
            done = await self._call(_do, duty)
            self._timetable.did(duty, done, began=began, now=time.monotonic())
            rounds.append(done)
        duty_log.tell(rounds)


def _do(connection: Connection, duty: Duty) -> Round:
    done = duties.Round()
    duties.do(connection, [duty], done)
    return done
