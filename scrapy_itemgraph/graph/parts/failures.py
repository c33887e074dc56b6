"""`graph.failures`: which are open, one by one or in groups, and what is done about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_itemgraph.exceptions import NotFoundError
from scrapy_itemgraph.store import failures, queues
from scrapy_itemgraph.store import items as stored_items
from scrapy_itemgraph.store.admin import crawl_changes, failure_groups
from scrapy_itemgraph.store.registry import code_changes, crawls
from scrapy_itemgraph.store.worklist import refresh

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from uuid import UUID

    from sqlalchemy import Connection

    from scrapy_itemgraph.graph.crawl_transactions import CrawlTransactions

HANDLED_BY = "a person"


class Failures:
    """Lists open failures, handles them, and undoes that."""

    def __init__(self, transactions: CrawlTransactions) -> None:
        self._transactions = transactions

    def groups(self, limit: int = 100) -> list[failure_groups.FailureGroup]:
        """Return open failures in groups of those that are alike, the latest first."""
        return self._transactions.of_crawl(failure_groups.groups, limit=limit)

    def handle(
        self,
        failure: int | None = None,
        *,
        task: str | None = None,
        group: UUID | None = None,
        retry: bool = True,
    ) -> int:
        """Mark failures as handled: one, a task's, a group's, or all; return how many pairs.

        Their pairs may run again; with `retry=False` they stay held. A failure that happens during
        the call is not handled.

        Raises:
            NotFoundError: there is no open failure of this number, or no such task.

        """
        last = self._transactions.call(failures.newest)

        def handle(connection: Connection, crawl_id: int) -> int:
            crawls.share_crawl(connection, crawl_id)
            found = failures.opened(
                connection,
                crawl_id,
                task=task,
                failure=failure,
                group=group,
                last=last,
                limit=crawl_changes.STEP,
            )
            pairs = sorted({(row.item_id, row.task_id) for row in found})
            locked = stored_items.lock_items(connection, [item for item, _ in pairs])
            failures.supersede(connection, pairs, by=HANDLED_BY)
            if retry:
                failures.unhold(connection, pairs)
                refresh.refresh(connection, locked)
                queues.wake_crawl(connection, crawl_id)
            return len(pairs)

        total = 0
        while count := self._transactions.of_known(task, handle):
            total += count
        if failure is not None and not total:
            raise NotFoundError(f"there is no open failure {failure}")
        return total

    def leave_to_newer(
        self,
        source_of: Callable[[str, str], UUID | None] | None,
        *,
        failure: int | None = None,
        task: str | None = None,
    ) -> list[code_changes.OlderWorker]:
        """Let only workers of the newest code claim work of tasks that have open failures.

        `source_of(spider, task)` returns the digest of the newest code of a task, None if it is not
        known: nothing changes for such a task. Without `source_of` every worker may claim the work
        again. Return the workers of older code; they claim none of it until they are restarted.
        """

        def failed(connection: Connection, crawl_id: int) -> list[code_changes.FailedTask]:
            return code_changes.failed_tasks(connection, crawl_id, task=task, failure=failure)

        found = self._transactions.of_known(task, failed)
        if source_of is None:
            self._transactions.call(lambda connection: code_changes.leave_none(connection, found))
            return []
        sources = {one.id: source_of(one.spider, one.name) for one in found}
        known = {number: source for number, source in sources.items() if source is not None}
        return self._transactions.call(lambda connection: code_changes.leave(connection, known))

    def unhandle(
        self,
        since: datetime,
        *,
        failure: int | None = None,
        task: str | None = None,
        group: UUID | None = None,
    ) -> int:
        """Undo what `handle` did since a moment of the database's clock; return how many failures.

        The failures are open again, and their pairs held. Pairs that have run since, or run now,
        or were stored or expired by an operation, are left as they are.
        """

        def undoable(connection: Connection, crawl_id: int) -> list[failures.HandledFailure]:
            return failures.undoable(
                connection,
                crawl_id,
                since,
                by=HANDLED_BY,
                task=task,
                failure=failure,
                group=group,
                limit=crawl_changes.STEP,
            )

        def unhandle(connection: Connection, crawl_id: int) -> int:
            crawls.share_crawl(connection, crawl_id)
            found = undoable(connection, crawl_id)
            locked = set(stored_items.lock_items(connection, [one.item_id for one in found]))
            still = undoable(connection, crawl_id)
            reopened = [one for one in still if one.item_id in locked]
            failures.reopen(connection, reopened)
            refresh.refresh(connection, locked)
            return len(reopened)

        total = 0
        while count := self._transactions.of_known(task, unhandle):
            total += count
        return total

    def list(
        self,
        task: str | None = None,
        limit: int = 1000,
        *,
        group: UUID | None = None,
        after: int = 0,
    ) -> list[failures.OpenFailure]:
        """Return open failures, the oldest first, with what their attempts logged.

        `group` is one of `groups()`; `after` the number of the last one that is known.
        """

        def failed(connection: Connection, crawl_id: int) -> list[failures.OpenFailure]:
            found = failures.opened(
                connection, crawl_id, task=task, group=group, after=after, limit=limit
            )
            return failures.logged(connection, found)

        return self._transactions.of_known(task, failed)
