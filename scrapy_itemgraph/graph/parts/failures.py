"""`graph.failures`: which are open, one by one or in groups, and what is done about them."""

from __future__ import annotations

import builtins
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, Unpack

from scrapy_itemgraph.exceptions import NotFoundError, OperationError
from scrapy_itemgraph.graph.crawl_transactions import item_of
from scrapy_itemgraph.model import counts, page_names
from scrapy_itemgraph.model.failure_filters import HANDLED_BY, FailureFilter, FailureFilters
from scrapy_itemgraph.store import failures, gone_pages, led_pages, open_failures, queues
from scrapy_itemgraph.store import items as stored_items
from scrapy_itemgraph.store.admin import crawl_changes, failure_counts, failure_groups, status
from scrapy_itemgraph.store.registry import code_changes, crawls
from scrapy_itemgraph.store.worklist import refresh

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from uuid import UUID

    from sqlalchemy import Connection

    from scrapy_itemgraph.graph.crawl_transactions import CrawlTransactions
    from scrapy_itemgraph.model.work import Pair
    from scrapy_itemgraph.store import page_search

_EVER = datetime.min.replace(tzinfo=UTC)

_List: TypeAlias = builtins.list  # a method of this name hides it


class FailureCount(NamedTuple):
    """How many pairs of item and task open failures are of."""

    number: int
    is_estimated: bool


class Failures:
    """Lists open failures, handles them, and undoes that.

    Which are meant is said by the fields of `FailureFilter`, as keywords: `failures`, `task`,
    `group`, `type`, `text` and `occurred_since`; without any, all of the crawl.
    """

    def __init__(self, transactions: CrawlTransactions) -> None:
        self._transactions = transactions

    def list(
        self,
        limit: int = 1000,
        *,
        after: int = 0,
        newest_first: bool = False,
        **filters: Unpack[FailureFilters],
    ) -> _List[failures.OpenFailure]:
        """Return open failures, the oldest first or the newest, with what their attempts logged.

        `after` is the number of the last one that is known. It looks until there are enough.
        """
        found: _List[failures.OpenFailure] = []
        following: int | None = after
        while following is not None and len(found) < limit:
            one = self.page(
                limit - len(found), after=following, newest_first=newest_first, **filters
            )
            found += one.rows
            following = one.next
        return found

    def page(
        self,
        limit: int = 100,
        *,
        after: int = 0,
        newest_first: bool = False,
        **filters: Unpack[FailureFilters],
    ) -> open_failures.FailurePage:
        """Return the same, found in a bounded time: `rows`, the `next` number, and `is_cut`.

        Of a type, a text or a time, 5,000 failures are looked at. With `is_cut` the search went no
        further than `next`, though there was room for more.
        """
        which = FailureFilter(**filters)
        read = partial(
            open_failures.page, which=which, after=after, limit=limit, newest_first=newest_first
        )
        return self._transactions.of_known(which.task, read)

    def groups(
        self, limit: int = 100, *, sort: str = "last", **filters: Unpack[FailureFilters]
    ) -> _List[failure_groups.FailureGroup]:
        """Return open failures in groups of those that are alike, sorted.

        By `last`, the latest failure, or by `first`, `count`, `task` or `type`. A text is looked
        for in each group's example, its last failure.

        Raises:
            OperationError: `sort` is none of these.

        """
        if sort not in failure_groups.ORDERS:
            known = ", ".join(failure_groups.ORDERS)
            raise OperationError(f"groups are sorted by one of {known}; not by {sort!r:.40}")
        which = FailureFilter(**filters)
        read = partial(failure_groups.groups, which=which, sort=sort, limit=limit)
        return self._transactions.of_known(which.task, read)

    def times(self, groups: Collection[UUID]) -> dict[UUID, _List[int]]:
        """Return when open failures of groups were, by group: the newest 500 of each.

        In seconds since 1970, the latest first.
        """
        return self._transactions.call(partial(failure_groups.times, groups=groups))

    def get(self, failure: int) -> open_failures.FailureDetails:
        """Return a failure of this number with all that is known of it, open or handled.

        Raises:
            NotFoundError: there is none in the crawl; it was handled a month ago, perhaps.

        """
        found = self._transactions.of_crawl(open_failures.details, failure)
        if found is None:
            raise NotFoundError(f"there is no failure {failure} in {self._transactions.crawl!r}")
        return found

    def open(self) -> int:
        """Return how many failures and refusals are open; an estimate above 100,000 of a task."""
        return self._transactions.of_crawl(status.open_failures)

    def of_item(self, name: str) -> dict[str, int]:
        """Return the number of the open failure of each task of an item, by the task's name.

        Raises:
            NotFoundError: there is no such item.

        """
        return self._transactions.of_item(
            name, lambda connection, _, item: open_failures.of_item(connection, item)
        )

    def crawl_of(self, failure: int) -> str | None:
        """Return the name of the crawl whose failure has this number; None: there is none."""
        return self._transactions.call(partial(open_failures.crawl_of, failure=failure))

    def count(self, **filters: Unpack[FailureFilters]) -> FailureCount:
        """Return how many pairs of item and task open failures are of: `number`, `is_estimated`.

        It is an estimate, of a sample, where more than 10,000 are open, or 5,000 of which a type, a
        text or a time is asked.

        Raises:
            NotFoundError: there is no open failure of a number that is given, or no such task.

        """
        which = FailureFilter(**filters)
        self._check_open(which)
        read = partial(failure_counts.pairs, which=which)
        number = self._transactions.of_known(which.task, read)
        return FailureCount(int(number), isinstance(number, counts.Estimate))

    def handle(
        self,
        failure: int | None = None,
        *,
        retry: bool = True,
        led_to: str | None = None,
        reached: Callable[[int], None] | None = None,
        **filters: Unpack[FailureFilters],
    ) -> int:
        """Mark failures as handled, by default all of the crawl; return how many pairs.

        Their pairs may run again; with `retry=False` they stay held. A failure that happens during
        the call is not handled. `reached(pairs)` is called after each transaction. Pages whose
        redirect led to a page that failed may run again with it, and count as well.

        `led_to` alone is a page by its URL, id or alias, such as a login page: the pages whose
        redirect led there may run again, the one that took its name included.

        Raises:
            NotFoundError: there is no open failure of a number that is given, no such task, or no
                page `led_to`; then nothing is handled.

        """
        if led_to is not None:
            return self._bring_back(led_to, reached)
        which = _which(failure, filters)
        self._check_open(which)
        last = self._transactions.call(open_failures.newest)
        handled = 0
        following: int | None = 0
        while following is not None:
            step = partial(_handle, which=which, after=following, last=last, retry=retry)
            count, following = self._transactions.of_known(which.task, step)
            handled += count
            if reached is not None:
                reached(handled)
        return handled

    def _bring_back(self, led_to: str, reached: Callable[[int], None] | None) -> int:
        """Have pages fetched again whose redirect led to a page; return how many."""
        page = self._transactions.of_crawl(item_of, led_to)
        found = self._transactions.of_crawl(_bring_back_own, page, led_to)
        step = partial(_bring_back, item_id=page.id)
        while count := self._transactions.of_crawl(step):
            found += count
            if reached is not None:
                reached(found)
        return found

    def unhandle(
        self,
        since: datetime | None = None,
        *,
        failure: int | None = None,
        **filters: Unpack[FailureFilters],
    ) -> int:
        """Undo what `handle` did since a moment of the database's clock; return how many failures.

        Without `since` at any time. The failures are open again, and their pairs held. Pairs that
        have run since, or run now, or were stored or expired by an operation, are left as they are.
        """
        which = _which(failure, filters)
        step = partial(_unhandle, since=since or _EVER, which=which)
        total = 0
        while count := self._transactions.of_known(which.task, step):
            total += count
        return total

    def handle_gone(self, task: str | None = None, *, item: str | None = None) -> int:
        """Have pages asked again that are gone: a task's, an item's, or all; return how many pairs.

        Raises:
            NotFoundError: there is no such task, or no such item.

        """
        handled = 0
        following: Pair | None = (0, 0)
        while following is not None:
            step = partial(_handle_gone, task=task, item=item, after=following)
            count, following = self._transactions.of_known(task, step)
            handled += count
        return handled

    def leave_to_newer(
        self,
        source_of: Callable[[str, str], UUID | None] | None,
        **filters: Unpack[FailureFilters],
    ) -> _List[code_changes.OlderWorker]:
        """Let only workers of the newest code claim work of tasks that have open failures.

        `source_of(spider, task)` returns the digest of the newest code of a task, None if it is not
        known: nothing changes for such a task. Without `source_of` every worker may claim the work
        again. Return the workers of older code; they claim none of it until they are restarted.
        """
        which = FailureFilter(**filters)
        tasks = self._concerned(which)

        def failed(connection: Connection, crawl_id: int) -> _List[code_changes.FailedTask]:
            return code_changes.failed_tasks(connection, crawl_id, task=which.task, tasks=tasks)

        found = self._transactions.of_known(which.task, failed)
        if source_of is None:
            self._transactions.call(lambda connection: code_changes.leave_none(connection, found))
            return []
        sources = {one.id: source_of(one.spider, one.name) for one in found}
        known = {number: source for number, source in sources.items() if source is not None}
        return self._transactions.call(lambda connection: code_changes.leave(connection, known))

    def _steps(self, which: FailureFilter) -> Iterator[_List[failures.PairOfFailure]]:
        """Go through the open failures that are meant, a step in a transaction."""
        following: int | None = 0
        while following is not None:
            read = partial(
                open_failures.look, which=which, after=following, limit=crawl_changes.STEP
            )
            found, following = self._transactions.of_known(which.task, read)
            yield found

    def _concerned(self, which: FailureFilter) -> _List[int] | None:
        """Return the numbers of the tasks whose failures are meant; None: by their task alone."""
        if which == FailureFilter(task=which.task):
            return None
        tasks: set[int] = set()
        for found in self._steps(which):
            tasks |= {one.task_id for one in found}
            if tasks and which.group is not None:  # a group is of one task
                break
        return sorted(tasks)

    def _check_open(self, which: FailureFilter) -> None:
        if which.failures is None:
            return
        given = sorted(set(which.failures))
        read = partial(open_failures.meant, which=FailureFilter(), numbers=given)
        found = {one.id for one in self._transactions.of_crawl(read)}
        lacking = [str(one) for one in given if one not in found]
        if lacking:
            raise NotFoundError(self._not_open(lacking))

    def _not_open(self, lacking: Sequence[str]) -> str:
        """Say of numbers that no failure of them is open, and what shows more."""
        are = "is no open failure" if len(lacking) == 1 else "are no open failures"
        found = self._transactions.of_crawl(open_failures.details, int(lacking[0]))
        shows = "scrapy itemgraph failures lists those that are"
        if found is not None and len(lacking) == 1:
            shows = f"it is handled, as scrapy itemgraph failures {lacking[0]} shows; {shows}"
        return f"there {are} {', '.join(lacking)}; {shows}"


def _which(failure: int | None, filters: FailureFilters) -> FailureFilter:
    which = FailureFilter(**filters)
    return which if failure is None else replace(which, failures=(failure,))


def _handle(
    connection: Connection,
    crawl_id: int,
    *,
    which: FailureFilter,
    after: int,
    last: int,
    retry: bool,
) -> tuple[int, int | None]:
    """Handle a step of failures after a number; return how many pairs, and where to go on."""
    crawls.share_crawl(connection, crawl_id)
    found, following = open_failures.look(
        connection, crawl_id, which, after=after, last=last, limit=crawl_changes.STEP
    )
    pairs = sorted({(row.item_id, row.task_id) for row in found})
    items = {item for item, _ in pairs}
    led = led_pages.found(connection, crawl_id, items, limit=crawl_changes.STEP) if retry else []
    if len(led) == crawl_changes.STEP:  # a step of its own, before their failures are handled
        _free_led(connection, crawl_id, led)
        return len(led), after
    locked = stored_items.lock_items(connection, sorted(items | {item for item, _ in led}))
    failures.supersede(connection, pairs, by=HANDLED_BY)
    if retry:
        failures.unhold(connection, pairs)
        led_pages.free(connection, led)
        refresh.refresh(connection, locked)
        queues.wake_crawl(connection, crawl_id)
    return len(pairs) + len(led), following


def _bring_back_own(
    connection: Connection, crawl_id: int, page: page_search.FoundPage, given: str
) -> int:
    """Bring a page back itself where it has the given name because its redirect led there."""
    urls = {page.item, page.url or page.item}
    if {given, page_names.plain_name(given), *page_names.stored_urls(given)} & urls:
        return 0
    crawls.share_crawl(connection, crawl_id)
    stored_items.lock_items(connection, [page.id])
    pairs = led_pages.own(connection, page.id)
    failures.supersede(connection, pairs, by=HANDLED_BY)
    failures.unhold(connection, pairs)
    _free_led(connection, crawl_id, pairs)
    return len(pairs)


def _bring_back(connection: Connection, crawl_id: int, *, item_id: int) -> int:
    """Bring a step of pages back whose redirect led to an item; return how many."""
    crawls.share_crawl(connection, crawl_id)
    led = led_pages.found(connection, crawl_id, [item_id], limit=crawl_changes.STEP)
    _free_led(connection, crawl_id, led)
    return len(led)


def _free_led(connection: Connection, crawl_id: int, pairs: Sequence[Pair]) -> None:
    locked = stored_items.lock_items(connection, sorted({item for item, _ in pairs}))
    led_pages.free(connection, pairs)
    refresh.refresh(connection, locked)
    queues.wake_crawl(connection, crawl_id)


def _unhandle(
    connection: Connection, crawl_id: int, *, since: datetime, which: FailureFilter
) -> int:
    """Open a step of handled failures again; return how many."""
    crawls.share_crawl(connection, crawl_id)
    undoable = partial(
        failures.undoable,
        connection,
        crawl_id,
        since,
        which,
        by=HANDLED_BY,
        limit=crawl_changes.STEP,
    )
    found = undoable()
    locked = set(stored_items.lock_items(connection, [one.item_id for one in found]))
    still = undoable()
    reopened = [one for one in still if one.item_id in locked]
    failures.reopen(connection, reopened)
    refresh.refresh(connection, locked)
    return len(reopened)


def _handle_gone(
    connection: Connection, crawl_id: int, *, task: str | None, item: str | None, after: Pair
) -> tuple[int, Pair | None]:
    """Free some pages that are gone; return how many, and after which to go on."""
    crawls.share_crawl(connection, crawl_id)
    if item is None:
        pairs = gone_pages.found(
            connection, crawl_id, task=task, after=after, limit=crawl_changes.STEP
        )
    else:
        item_id = stored_items.resolve(connection, crawl_id, item)
        if item_id is None:
            raise NotFoundError(f"there is no item {item}")
        pairs = gone_pages.of_item(connection, item_id, task=task)
    locked = stored_items.lock_items(connection, sorted({number for number, _ in pairs}))
    freed = gone_pages.free(connection, pairs)
    refresh.refresh(connection, locked)
    queues.wake_crawl(connection, crawl_id)
    return freed, pairs[-1] if item is None and pairs else None
