"""`graph.schedules`: crawls that are started again and again."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.model.schedules import Rule
from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store.registry import schedules

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from scrapy_itemgraph.graph.crawl_transactions import CrawlTransactions
    from scrapy_itemgraph.model.schedule_terms import NewSchedule, Schedule


class Schedules:
    """The schedules of the database, by number; one that is not there is a NotFoundError.

    Who changes one says who they are: `by`, which the history of its crawl keeps. Runners start
    crawls when they are due.
    """

    def __init__(self, transactions: CrawlTransactions) -> None:
        self._transactions = transactions

    def add(self, crawl: str, new: NewSchedule, *, by: str) -> Schedule:
        """Have a crawl of the queue started by a schedule, first at the first moment to come.

        Raises:
            NotFoundError: there is no such crawl in the queue.
            OperationError: what is given as its rule is none.

        """
        _check_rule(new.rule)

        def within(connection: Connection) -> Schedule:
            number = schedules.add(connection, crawl, new, by=by)
            return schedules.schedule(connection, number)

        return self._transactions.call(within)

    def list(
        self, *, crawl: str | None = None, after: int = 0, limit: int = 1000
    ) -> list[Schedule]:
        """Return schedules by number from `after` on: all, or a crawl's; `limit` at most."""
        return self._transactions.call(
            partial(schedules.schedules, crawl=crawl, after=after, limit=limit)
        )

    def get(self, schedule: int) -> Schedule:
        """Return one schedule."""
        return self._transactions.call(partial(schedules.schedule, number=schedule))

    def set(self, schedule: int, *, by: str, **changes: Any) -> Schedule:
        """Change a schedule; return it as it is then.

        `changes` are `rule`, `catch_up`, `overlap`, `grace`, `jitter` (None: none), `time_limit`
        (None: the crawl's) and `is_enabled`. With another rule, or when it is enabled, it is due
        next at the first moment still to come.

        Raises:
            OperationError: a value that cannot be.

        """
        unknown = set(changes) - schedules.SETTABLE - {"rule"}
        if unknown:
            raise OperationError(f"a schedule has no {', '.join(sorted(unknown))} to be set")
        if "rule" in changes:
            _check_rule(changes["rule"])
        return self._transactions.call(
            partial(schedules.change, number=schedule, changes=changes, by=by)
        )

    def enable(self, schedule: int, *, by: str) -> Schedule:
        """Have a schedule start its crawl again; what it missed meanwhile is not caught up with."""
        return self.set(schedule, by=by, is_enabled=True)

    def disable(self, schedule: int, *, by: str) -> Schedule:
        """Have a schedule start nothing until it is enabled; what has not begun is cancelled."""
        return self.set(schedule, by=by, is_enabled=False)

    def remove(self, schedule: int, *, by: str) -> None:
        """Remove a schedule; its crawl and its jobs stay, and what has not begun is cancelled."""
        self._transactions.call(partial(schedules.remove, number=schedule, by=by))

    def next(
        self, schedule: int, *, count: int = 10, after: datetime | None = None
    ) -> Sequence[datetime]:
        """Return when a schedule is due next: `count` times at most, after a moment or now.

        Raises:
            OperationError: its rule cannot be read here: its time zone is not known, say.

        """
        rule = self.get(schedule).read_rule()
        moment = self._transactions.call(lambda c: c.scalar(engine.NOW)) if after is None else after
        return list(islice(rule.following(moment), count))


def _check_rule(rule: Rule) -> None:
    if not isinstance(rule, Rule):
        raise OperationError(f'a rule is Rule.read({{"at": "03:00"}}), not {rule!r:.100}')
