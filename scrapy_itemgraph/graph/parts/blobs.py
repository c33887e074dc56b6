"""`graph.blobs`: binary data that items have, what is in it, and what is collected."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from scrapy_itemgraph.exceptions import NotFoundError
from scrapy_itemgraph.store import blobs as stored_blobs
from scrapy_itemgraph.tools.wording import closest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Connection

    from scrapy_itemgraph.contents.transfer import CommandContents
    from scrapy_itemgraph.graph.crawl_transactions import CrawlTransactions
    from scrapy_itemgraph.model.blobs import BlobSnapshot
    from scrapy_itemgraph.store.blobs import Place


@dataclass(frozen=True, slots=True)
class OpenBlob:
    """A blob of an item; `sha256` is hexadecimal."""

    name: str
    size: int  # bytes
    mime: str | None
    sha256: str
    _read: Callable[..., Iterator[bytes]]

    def parts(self, start: int = 0) -> Iterator[bytes]:
        """Yield its content from byte `start` on, up to a megabyte at a time.

        Raises:
            BlobStoreError: the store cannot be read, or, at the end of the whole content, it is not
                what was attached.

        """
        return self._read(start=start)


class Blobs:
    """Shows and reads blobs of items, and collects contents that no item has."""

    def __init__(self, transactions: CrawlTransactions, contents: CommandContents) -> None:
        self._transactions = transactions
        self._contents = contents

    def read(self, name: str, blob: str) -> Iterator[bytes]:
        """Yield the content of an item's blob, up to a megabyte at a time.

        Content that is kept in the database comes as one part.

        Raises:
            NotFoundError: there is no such item, or it has no such blob; before anything is read.
            BlobStoreError: the store cannot be read, or, at the end, what was read is not what was
                attached.

        """
        return self.open(name, blob).parts()

    def open(self, name: str, blob: str) -> OpenBlob:
        """Return an item's blob as it is now, to be read later, also from a byte on.

        Raises:
            NotFoundError: there is no such item, or it has no such blob.

        """

        def found(connection: Connection, _: int, item_id: int) -> tuple[Place, str | None]:
            known = stored_blobs.place(connection, item_id, blob)
            if known is None:
                names = [one.name for one in stored_blobs.of_item(connection, item_id)]
                raise NotFoundError(f"the item {name!r} has no blob {blob!r}{closest(blob, names)}")
            return known

        place, mime = self._transactions.of_item(name, found)
        parts = partial(self._contents.read, place, blob)
        return OpenBlob(blob, place.size, mime, place.sha256.hex(), parts)

    def collect(self, *, now: bool = False) -> int:
        """Delete contents that no item has had for a day; return how many.

        With `now` the day is not waited for: also contents written a moment ago are deleted.
        Workers call it by themselves, for the database and for the store that they write to.
        """
        return self._contents.collect(now=now)

    def list(self, name: str) -> list[BlobSnapshot]:
        """Return an item's blobs, by their names."""
        return self._transactions.of_item(
            name, lambda c, _, item_id: stored_blobs.of_item(c, item_id)
        )
