"""`graph.crawls`: the crawls of the database, and what is done to one as a whole."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from scrapy_itemgraph.store import pruning
from scrapy_itemgraph.store import slots as stored_slots
from scrapy_itemgraph.store.admin import (
    crawl_changes,
    crawl_contents,
    crawl_lists,
    dump,
    dump_lines,
    load,
    next_starts,
    overview,
    run_lists,
    status,
)
from scrapy_itemgraph.store.registry import crawls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import timedelta

    from sqlalchemy import Connection

    from scrapy_itemgraph.contents.transfer import CommandContents
    from scrapy_itemgraph.graph.crawl_transactions import CrawlTransactions
    from scrapy_itemgraph.model.blobs import Content
    from scrapy_itemgraph.store.admin.overview import CrawlOverview
    from scrapy_itemgraph.store.blobs import Place


class Crawls:
    """The crawls of the database; restarts, deletes, ages, dumps and loads the graph's own."""

    def __init__(self, transactions: CrawlTransactions, contents: CommandContents) -> None:
        self._transactions = transactions
        self._contents = contents

    def names(self) -> list[str]:
        """Return the names of all crawls of the database."""
        return self._transactions.call(status.crawls)

    def overview(self, *names: str, after: str = "", limit: int = 100) -> list[CrawlOverview]:
        """Return how each of the database's crawls stands, by name from `after` on; or some."""
        read = partial(overview.overview, names=names or None, after=after, limit=limit)
        return self._transactions.call(read)

    def in_trouble_first(self, *, after: str = "", limit: int = 100) -> list[CrawlOverview]:
        """Return how crawls stand: broken ones, then those that need a look, then the others.

        Each part is sorted by name and begins behind the crawl `after`. The health of the first
        1,000 crawls of `list` is read; the others count as well.
        """

        def read(connection: Connection) -> list[CrawlOverview]:
            names = crawl_lists.in_trouble_first(connection, after=after, limit=limit)
            found = overview.overview(connection, names=names, after="", limit=limit)
            return sorted(found, key=lambda one: names.index(one.crawl))

        return self._transactions.call(read)

    def runs(self, *, limit: int = pruning.MOST_RUNS) -> list[run_lists.RunLine]:
        """Return the runs of the graph's crawl, the newest first, up to `limit`."""
        return self._transactions.of_crawl(run_lists.runs, limit=limit)

    def next_start(self) -> next_starts.NextStart | None:
        """Return how the graph's crawl is started again; None: it has never run."""
        return self._transactions.of_crawl(next_starts.next_start)

    def restart(
        self, *, dry_run: bool = False, reached: Callable[[int, int], None] | None = None
    ) -> dict[str, int]:
        """Delete all that the graph's crawl has; return how much of what. Its tasks stay known.

        With `dry_run` nothing is deleted, and what would be is an estimate where it is much.
        `reached(done, total)` is called now and then with the number of items that are deleted.

        Raises:
            OperationError: while a worker of the crawl lives.

        """

        def run(connection: Connection, crawl_id: int) -> dict[str, int]:
            if dry_run:
                return crawl_contents.holds(connection, crawl_id)
            crawls.own_crawl(connection, crawl_id)
            crawl_changes.refuse_workers(connection, crawl_id)
            return crawl_changes.restart(connection, crawl_id, reached)

        return self._transactions.of_crawl(run)

    def delete(self, *, reached: Callable[[int], None] | None = None) -> int:
        """Delete the graph's crawl with all that it has, in steps; return how many items.

        `reached(done)` is called after each step. After an error the rest of the crawl is whole,
        and the call can be repeated.

        Raises:
            OperationError: while a worker of the crawl lives.
            NotFoundError: there is no such crawl.

        """
        done = 0
        while count := self._transactions.of_crawl(crawl_lists.delete_some):
            done += count
            if reached is not None:
                reached(done)
        return done

    def dump(self, *, blobs: bool = False) -> Iterator[str]:
        """Go through the lines of a dump of the graph's crawl, all of one snapshot.

        A line is JSON. Without `blobs` there is nothing of binary data in it.
        """
        crawl_id = self._transactions.of_crawl(lambda _, crawl_id: crawl_id)
        with self._transactions.snapshot() as connection:

            def read(place: Place) -> Iterator[bytes]:
                return self._contents.read(place, place.sha256.hex(), connection)

            yield from dump.lines(connection, crawl_id, read if blobs else None)

    def load(
        self, lines: Iterable[str], *, reached: Callable[[int], None] | None = None
    ) -> dict[str, int]:
        """Make a crawl of the lines of a dump; return how many items, failures and so on it has.

        The crawl gets the name that the graph was opened with, or else the dump's own. Others see
        it when it is whole. `reached(count)` is called now and then with the number of lines read.

        Raises:
            OperationError: when there is such a crawl already, or naming the line that is wrong;
                then nothing is loaded.

        """
        numbered = enumerate(lines, 1)
        head = dump_lines.head(next(numbered, (1, ""))[1])
        crawl = self._transactions.named = self._transactions.named or head

        def intern(wanted: Iterable[tuple[str, str]]) -> dict[tuple[str, str], int]:
            return self._transactions.call(partial(stored_slots.intern_limits, keys=wanted))

        def store(content: Content) -> None:
            self._contents.store([content])

        with (
            self._transactions.long() as connection,
            ThreadPoolExecutor(1) as writer,
            closing(load.Load(connection, crawl, intern, writer, store)) as loading,
        ):
            for number, line in numbered:
                loading.add(f"line {number}", line)
                if reached is not None and number % crawl_changes.STEP == 0:
                    reached(number)
            return loading.finish()

    def age(self, period: timedelta) -> None:
        """Move every time of the graph's crawl back, as if that much had passed."""
        self._transactions.of_crawl(crawl_changes.age, period)

    def list(
        self,
        *,
        spider: str | None = None,
        older_than: timedelta | None = None,
        limit: int | None = None,
    ) -> list[crawl_lists.CrawlLine]:
        """Return the crawls of the database by spider and name.

        Those of one spider, or those that nobody has used for a period, as far as is asked. With
        `limit` so many are looked at: active, paused, unmanaged, aborted and finished ones, in this
        order, and of these the newest.
        """
        found = partial(crawl_lists.listed, spider=spider, older_than=older_than, limit=limit)
        return self._transactions.call(found)
