"""Calls about a crawl as a whole: its numbers and tasks, and what is done to all of it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.graph.crawl_transactions import Calls
from scrapy_itemgraph.store import slots as stored_slots
from scrapy_itemgraph.store.admin import crawl_lists, crawl_reports, dump, dump_lines, load, status
from scrapy_itemgraph.store.registry import crawls
from scrapy_itemgraph.store.registry import tasks as stored_tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import timedelta

    from sqlalchemy import Connection

    from scrapy_itemgraph.model.blobs import Content
    from scrapy_itemgraph.store.blobs import Place


class CrawlCalls(Calls):
    """Shows how a crawl stands, and starts it anew, ages, dumps and loads it."""

    def tasks(self) -> list[status.TaskState]:
        """Return every task with what is done, waiting and failed of it."""
        return self._of_crawl(status.tasks)

    def enable(self, task: str) -> None:
        """Let a task's work be claimed again."""
        self._of_task(task, partial(stored_tasks.set_enabled, enabled=True))

    def disable(self, task: str) -> None:
        """Leave a task's work unclaimed until it is enabled."""
        self._of_task(task, partial(stored_tasks.set_enabled, enabled=False))

    def recompute_ttl(self, task: str) -> int:
        """Let a task's results expire as its time to live says now, but for overridden ones.

        Returns how many changed; work that follows from it is made by the next run.
        """
        return self._of_task(task, crawl_reports.recompute_ttl)

    def status(self) -> dict[str, Any]:
        """Return the crawl's numbers."""
        return {"crawl": self.crawl, **self._of_crawl(status.status)}

    def restart(
        self, *, dry_run: bool = False, reached: Callable[[int, int], None] | None = None
    ) -> dict[str, int]:
        """Delete all that a crawl has, and return how much of what; its tasks stay known.

        `reached` hears now and then how many of how many items are gone.

        Raises:
            OperationError: while a worker of the crawl lives.

        """

        def run(connection: Connection, crawl_id: int) -> dict[str, int]:
            if dry_run:
                return crawl_reports.holds(connection, crawl_id)
            crawls.own_crawl(connection, crawl_id)
            crawl_reports.refuse_workers(connection, crawl_id)
            return crawl_reports.restart(connection, crawl_id, reached)

        return self._of_crawl(run)

    def crawl_lines(
        self, *, spider: str | None = None, older_than: timedelta | None = None
    ) -> list[crawl_lists.CrawlLine]:
        """Return the crawls of the database by spider and name.

        Those of one spider, or those that nobody has used for a period, as far as is asked.
        """
        found = partial(crawl_lists.listed, spider=spider, older_than=older_than)
        return self._call(found)

    def delete_crawl(self, *, reached: Callable[[int], None] | None = None) -> int:
        """Delete the crawl with all that it has, in steps of their own; return how many items.

        `reached` hears after each step how many are gone. What is left after an error is whole: the
        call can be made once more.

        Raises:
            OperationError: while a worker of the crawl lives.
            NotFoundError: there is no such crawl.

        """
        done = 0
        while count := self._of_crawl(crawl_lists.delete_some):
            done += count
            if reached is not None:
                reached(done)
        return done

    def dump(self, *, blobs: bool = False) -> Iterator[str]:
        """Go through the lines of a dump of the crawl, JSON without newlines, in one snapshot.

        Without `blobs` there is nothing of binary data in it.
        """
        crawl_id = self._of_crawl(lambda _, crawl_id: crawl_id)
        with self._transactions.snapshot() as connection:

            def read(place: Place) -> Iterator[bytes]:
                return self._contents.read(place, place.sha256.hex(), connection)

            yield from dump.lines(connection, crawl_id, read if blobs else None)

    def load(
        self, lines: Iterable[str], *, reached: Callable[[int], None] | None = None
    ) -> dict[str, int]:
        """Make a crawl of the lines of a dump, and return how much there was of what.

        It is this graph's crawl, or the dump's own where none was named; nobody sees it before it
        is whole. `reached` hears now and then how many lines were read.

        Raises:
            OperationError: when there is such a crawl already, or naming the line that is wrong;
                then nothing is loaded.

        """
        numbered = enumerate(lines, 1)
        head = dump_lines.head(next(numbered, (1, ""))[1])
        self._crawl = self._crawl or head

        def intern(wanted: Iterable[tuple[str, str]]) -> dict[tuple[str, str], int]:
            return self._call(partial(stored_slots.intern_limits, keys=wanted))

        def store(content: Content) -> None:
            self._contents.store([content])

        with (
            self._transactions.long() as connection,
            ThreadPoolExecutor(1) as writer,
            closing(load.Load(connection, self._crawl, intern, writer, store)) as loading,
        ):
            for number, line in numbered:
                loading.add(f"line {number}", line)
                if reached is not None and number % crawl_reports.STEP == 0:
                    reached(number)
            return loading.finish()

    def age(self, period: timedelta) -> None:
        """Move every time of the crawl back, as if that much had passed."""
        self._of_crawl(crawl_reports.age, period)
