"""How `ItemGraph.apply` applies operations: one transaction, contents stored before it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from scrapy_itemgraph.changesets import additions, apply
from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.model import operations
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.store import blobs as stored_blobs
from scrapy_itemgraph.store.registry import crawls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Connection

    from scrapy_itemgraph.contents.transfer import CommandContents
    from scrapy_itemgraph.graph.crawl_transactions import CrawlTransactions
    from scrapy_itemgraph.graph.prepared import Prepared
    from scrapy_itemgraph.model.blobs import Content
    from scrapy_itemgraph.model.work import Note

T = TypeVar("T")


class Applying:
    """Applies operations; what calls over HTTP change is marked `is_from_outside`."""

    def __init__(
        self,
        transactions: CrawlTransactions,
        contents: CommandContents,
        *,
        is_from_outside: bool,
    ) -> None:
        self._transactions = transactions
        self._contents = contents
        self._is_from_outside = is_from_outside

    def run(self, prepared: Prepared) -> list[Note]:
        """Apply operations in one transaction; a crawl that does not exist yet is made.

        Raises:
            OperationError: naming the operation; then nothing is changed.

        """
        within = partial(self._within, prepared=prepared)
        if prepared.additions is None and operations.attachments(prepared.operations):
            return self._with_contents(prepared, within)
        return self._transactions.call(within)

    def _within(self, connection: Connection, prepared: Prepared) -> list[Note]:
        crawl_id = crawls.make_crawl(connection, self._transactions.crawl)
        engines.hot_path(connection)
        crawl = crawls.share_crawl(connection, crawl_id)
        if (new := prepared.additions) is not None:
            return additions.add(
                connection,
                new,
                crawl=crawl,
                is_from_outside=self._is_from_outside,
            )
        changeset = operations.Changeset(operations=prepared.operations, outcome=Outcome.OK)
        (applied,) = apply.apply(
            connection,
            [changeset],
            crawl=crawl,
            worker_id=None,
            is_from_outside=self._is_from_outside,
        )
        if applied.error is not None:
            name = prepared.names[applied.failed_at or 0]
            raise OperationError(f"{name}: {applied.error.message}")
        return list(applied.notes)

    def _with_contents(self, prepared: Prepared, run: Callable[[Connection], T]) -> T:
        """Store the contents that operations attach, then run the transaction.

        Both are done again where contents were collected in between.
        """
        contents = list(self._measured(prepared))
        while True:
            self._contents.store(contents)
            try:
                return self._transactions.call(run)
            except stored_blobs.ContentsGoneError as gone:
                for content in contents:
                    if content.number in gone.numbers:
                        content.number = content.announced = None

    def _measured(self, prepared: Prepared) -> Iterator[Content]:
        for one, name in zip(prepared.operations, prepared.names, strict=True):
            if isinstance(one, operations.AttachBlob):
                try:
                    self._contents.measure(one.content)
                except OperationError as error:
                    raise OperationError(f"{name}: AttachBlob: {error}") from None
                yield one.content
