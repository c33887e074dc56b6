"""`graph.tasks`: the tasks that the crawl knows, as spiders declared them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from scrapy_itemgraph.changesets import apply
from scrapy_itemgraph.graph.prepared import prepare
from scrapy_itemgraph.model import operations
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store.admin import crawl_changes, expirable, status
from scrapy_itemgraph.store.registry import crawls
from scrapy_itemgraph.store.registry import tasks as stored_tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy import Connection

    from scrapy_itemgraph.graph.crawl_transactions import CrawlTransactions


class Tasks:
    """Shows tasks, stops and resumes their work, and expires their results."""

    def __init__(self, transactions: CrawlTransactions) -> None:
        self._transactions = transactions

    def enable(self, task: str) -> None:
        """Let a task's work be claimed again."""
        self._transactions.of_task(task, partial(stored_tasks.set_enabled, enabled=True))

    def disable(self, task: str) -> None:
        """Leave a task's work unclaimed until it is enabled."""
        self._transactions.of_task(task, partial(stored_tasks.set_enabled, enabled=False))

    def recompute_ttl(self, task: str) -> int:
        """Recompute when a task's results expire, by its present time to live.

        Results whose time to live was set by an operation keep it. Return how many results changed;
        the next run makes the work that follows.
        """
        return self._transactions.of_task(task, crawl_changes.recompute_ttl)

    def expire(
        self,
        task: str | None = None,
        *,
        tag: str | None = None,
        reached: Callable[[int], None] | None = None,
    ) -> int:
        """Make results stale, as `Expire` does: of a task, of items with a tag, or of the crawl.

        Return how many results. It goes through the items, some thousand in a transaction, and
        calls `reached(results)` after each: what is made meanwhile may be left out.

        Raises:
            NotFoundError: there is no such task, or the tag is misspelt.

        """
        self._transactions.check_tag(tag)
        expired = 0
        following: int | None = 0
        while following is not None:
            step = partial(_expire, task=task, tag=tag, after=following)
            found = self._transactions.of_known(task, step)
            expired, following = expired + found.results, found.next
            if reached is not None:
                reached(expired)
        return expired

    def tags(self) -> Mapping[str, Sequence[str]]:
        """Return the tags that call for each task, by its name; nothing is counted for it."""
        return self._transactions.of_crawl(_tags)

    def declared(self) -> list[status.DeclaredTask]:
        """Return every task as its spider declared it; nothing is counted for it."""
        return self._transactions.of_crawl(status.declared)

    def list(self) -> list[status.TaskState]:
        """Return every task with what is done, waiting and failed of it."""
        return self._transactions.of_crawl(status.tasks)


def _tags(connection: Connection, crawl_id: int) -> dict[str, list[str]]:
    known = stored_tasks.known_tasks(connection, crawl_id)
    return {one.name: sorted(one.tags) for one in sorted(known, key=lambda one: one.name)}


def _expire(
    connection: Connection, crawl_id: int, *, task: str | None, tag: str | None, after: int
) -> expirable.Expirable:
    """Expire what the next items have; return what that was, and where to go on."""
    engine.hot_path(connection)
    crawl = crawls.share_crawl(connection, crawl_id)
    found = expirable.look(connection, crawl_id, task=task, tag=tag, after=after)
    given = prepare([operations.Expire(id=name, task=task) for name in found.names]).operations
    while given:
        changeset = operations.Changeset(operations=given, outcome=Outcome.OK)
        (applied,) = apply.apply(connection, [changeset], crawl=crawl, worker_id=None)
        if applied.error is None:
            break
        # The item was deleted since: the others are expired.
        without = applied.failed_at or 0
        given = operations.Checked([*given[:without], *given[without + 1 :]])
    return found
