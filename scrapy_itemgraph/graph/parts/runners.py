"""`graph.runners`: the daemons that run the crawls of the queue."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.model import input_checks
from scrapy_itemgraph.store.admin import runner_reports
from scrapy_itemgraph.store.registry import job_changes, runners

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy import Connection

    from scrapy_itemgraph.graph.crawl_transactions import CrawlTransactions


class Runners:
    """The runners of the database, over all projects; a name that is not there is a NotFoundError.

    Who changes one says who they are: `by`, which the history keeps.
    """

    def __init__(self, transactions: CrawlTransactions) -> None:
        self._transactions = transactions

    def list(self) -> list[runner_reports.RunnerLine]:
        """Return all runners by name, those that live and those that did."""
        return self._transactions.call(runner_reports.runners)

    def get(self, name: str) -> runner_reports.RunnerLine:
        """Return one runner."""
        return self._transactions.call(partial(runner_reports.runner, name=name))

    def places(self, name: str) -> Sequence[runner_reports.PlaceLine]:
        """Return the places of a runner, and what they have."""
        return self._transactions.call(partial(runner_reports.places, name=name))

    def all_places(self) -> Mapping[str, Sequence[runner_reports.PlaceLine]]:
        """Return the places of all runners, by the runner's name."""
        return self._transactions.call(runner_reports.all_places)

    def drain(self, name: str, *, by: str, drains: bool = True) -> bool:
        """Have a runner start nothing more, or, with `drains=False`, start something again.

        What runs comes to its end. Returns False where it was so before.
        """

        def within(connection: Connection) -> bool:
            row = runners.named(connection, name)
            if row is None:
                raise runner_reports.not_found(connection, name)
            return runners.drain(connection, row.id, by=by, drains=drains)

        return self._transactions.call(within)

    def set(
        self,
        name: str,
        *,
        by: str,
        tags: Sequence[str] | None = None,
        only_tagged: bool | None = None,
        preempts: bool | None = None,
    ) -> runner_reports.RunnerLine:
        """Change which crawls a runner takes, until it starts again; return it as it is then.

        A process whose crawl it may not have any more ends in order. None changes nothing.

        Raises:
            OperationError: it would take tagged crawls alone, and has no tag.

        """
        for tag in tags or ():
            input_checks.check_text(tag, "tag")
        given = {"tags": tags, "only_tagged": only_tagged, "preempts": preempts}

        def within(connection: Connection) -> runner_reports.RunnerLine:
            self._found(connection, name, partial(job_changes.set_runner, given=given, by=by))
            changed = runner_reports.runner(connection, name)
            if changed.only_tagged and not changed.tags:
                raise OperationError(
                    f"the runner {name} would take nothing: tagged crawls alone, and it has no tag"
                )
            return changed

        return self._transactions.call(within)

    def reclaim(self, name: str, reason: str, *, by: str) -> None:
        """Take from a runner what it has, as if it were dead: its crawls are started elsewhere.

        One that lives in spite of it notices, and goes on with what is not started again by then.
        """
        within = partial(job_changes.reclaim_runner, reason=reason, by=by)
        self._transactions.call(lambda connection: self._found(connection, name, within))

    @staticmethod
    def _found(connection: Connection, name: str, change: Callable[..., Any]) -> None:
        if not change(connection, name=name):
            raise runner_reports.not_found(connection, name)
