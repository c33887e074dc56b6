"""`graph.pages`: pages that people set aside, free again, or give more attempts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.graph.crawl_transactions import item_id, item_of
from scrapy_itemgraph.model.failure_filters import HANDLED_BY
from scrapy_itemgraph.model.set_aside import Hold
from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store import set_aside
from scrapy_itemgraph.store.registry import crawls

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection

    from scrapy_itemgraph.graph.crawl_transactions import CrawlTransactions

MOST_ATTEMPTS = 1000
MOST_DRIPPED = 100_000


class _Step(NamedTuple):
    """How many pages a transaction changed, and the item to go on behind."""

    changed: int
    next: int | None


class Pages:
    """Sets pages of a crawl aside, with the tasks that their tags call for, and frees them.

    A page is an item, of a task as well. What is skipped is not wanted, what is stashed is wanted
    later; neither is outstanding, whatever its result says, before somebody frees it. Handling
    failures, expiring and new runs free none. Calls that go through many take some thousand items
    in a transaction, and tell `reached(changed)` after each.
    """

    def __init__(self, transactions: CrawlTransactions) -> None:
        self._transactions = transactions

    def set_aside(self, hold: Hold | str, names: Sequence[str]) -> int:
        """Skip or stash pages, by their ids or URLs; return for how many that changed something.

        A page that is claimed goes on to the end of its claim. All is done in one transaction.

        Raises:
            NotFoundError: the crawl has no page of a name; then none is set aside.

        """
        return self._transactions.of_crawl(
            partial(_named, names=names, do=set_aside.hold), Hold(hold)
        )

    def free(self, hold: Hold | str, names: Sequence[str]) -> int:
        """Free pages that are skipped, or stashed; return how many were. Raises likewise."""
        return self._transactions.of_crawl(
            partial(_named, names=names, do=set_aside.free), Hold(hold)
        )

    def set_aside_all(
        self,
        hold: Hold | str,
        *,
        part: str | None = None,
        tag: str | None = None,
        reached: Callable[[int], None] | None = None,
    ) -> int:
        """Skip or stash all pages that have a part of a URL or id, or a tag; return how many.

        Raises:
            OperationError: the part is empty, which every page has.
            NotFoundError: the tag is misspelt.

        """
        _check_part(part)
        self._transactions.check_tag(tag)
        return self._go_through(
            partial(_set_aside_some, hold=Hold(hold), part=part, tag=tag), reached
        )

    def free_all(
        self,
        hold: Hold | str,
        *,
        part: str | None = None,
        reached: Callable[[int], None] | None = None,
    ) -> int:
        """Free all pages that are skipped, or stashed; with `part` those that have it.

        Raises:
            OperationError: the part is empty, which every page has.

        """
        _check_part(part)
        return self._go_through(partial(_free_some, hold=Hold(hold), part=part), reached)

    def _go_through(self, step: Callable[..., _Step], reached: Callable[[int], None] | None) -> int:
        changed = 0
        following: int | None = 0
        while following is not None:
            done = self._transactions.of_crawl(partial(step, after=following))
            changed, following = changed + done.changed, done.next
            if reached is not None:
                reached(changed)
        return changed

    def give_attempts(self, name: str, attempts: int = 1, *, task: str | None = None) -> list[str]:
        """Give a page so many attempts from now on; return its tasks that have them.

        Open failures of these are handled. A plain page has so many as well, each with Scrapy's own
        retries.

        Raises:
            NotFoundError: there is no such page or task.
            OperationError: the number is not from 1 to 1,000, or nothing of the page is
                outstanding.

        """
        if not 1 <= attempts <= MOST_ATTEMPTS:
            raise OperationError(
                f"a page is given 1 to {MOST_ATTEMPTS:,} attempts, and not {attempts:,}; "
                "pages skip has it left alone"
            )

        def give(connection: Connection, crawl_id: int, task_id: int | None) -> list[str]:
            engine.hot_path(connection)
            crawls.share_crawl(connection, crawl_id)
            page = item_of(connection, crawl_id, name)
            tasks = set_aside.give_attempts(
                connection, page.id, attempts, task_id=task_id, by=HANDLED_BY
            )
            if not tasks:
                raise OperationError(
                    f"nothing of {page.shown} is outstanding, so it has no attempts; explain says "
                    "why, and expire has it run again"
                )
            return tasks

        if task is None:
            return self._transactions.of_crawl(give, None)
        return self._transactions.of_task(task, give)

    def dripfeed(self, pages: int | None) -> None:
        """Keep so many pages of the stash in work; None: free none of it any more.

        Workers of the crawl free the first of the stash as others are done, and the crawl does not
        end before its stash is empty.

        Raises:
            OperationError: the number is not from 1 to 100,000.

        """
        if pages is not None and not 1 <= pages <= MOST_DRIPPED:
            raise OperationError(f"pages in work are 1 to {MOST_DRIPPED:,}, and not {pages:,}")
        self._transactions.of_crawl(set_aside.set_dripfeed, pages)

    def dripfed(self) -> int | None:
        """Return how many pages of its stash the crawl keeps in work; None: nobody said so."""
        return self._transactions.of_crawl(set_aside.dripfeed)


def _check_part(part: str | None) -> None:
    """Refuse what every page has: a variable that is not set, say."""
    if part == "":
        raise OperationError(
            "the part of a URL or id is empty, and every page has that; give some of it"
        )


def _named(
    connection: Connection,
    crawl_id: int,
    hold: Hold,
    *,
    names: Sequence[str],
    do: Callable[[Connection, Sequence[int], Hold], set[int]],
) -> int:
    engine.hot_path(connection)
    crawls.share_crawl(connection, crawl_id)
    numbers = [item_id(connection, crawl_id, name) for name in names]
    return len(do(connection, numbers, hold))


def _set_aside_some(
    connection: Connection,
    crawl_id: int,
    *,
    hold: Hold,
    part: str | None,
    tag: str | None,
    after: int,
) -> _Step:
    engine.hot_path(connection)
    crawls.share_crawl(connection, crawl_id)
    found = set_aside.look(connection, crawl_id, part=part, tag=tag, after=after)
    return _Step(len(set_aside.hold(connection, found.items, hold)), found.next)


def _free_some(
    connection: Connection, crawl_id: int, *, hold: Hold, part: str | None, after: int
) -> _Step:
    engine.hot_path(connection)
    crawls.share_crawl(connection, crawl_id)
    found = set_aside.look_at_set_aside(connection, crawl_id, hold, part=part, after=after)
    return _Step(len(set_aside.free(connection, found.items, hold)), found.next)
