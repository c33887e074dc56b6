"""Calls about binary data: what an item has, what is in it, and what is collected."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from scrapy_itemgraph.exceptions import NotFoundError, OperationError
from scrapy_itemgraph.graph.crawl_transactions import Calls
from scrapy_itemgraph.model.operations import AttachBlob
from scrapy_itemgraph.store import blobs as stored_blobs
from scrapy_itemgraph.tools.wording import closest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Connection

    from scrapy_itemgraph.graph.prepared import Prepared
    from scrapy_itemgraph.model.blobs import BlobSnapshot
    from scrapy_itemgraph.store.blobs import Place

T = TypeVar("T")


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


class BlobCalls(Calls):
    """Shows and reads blobs, has contents stored, and collects what nobody names."""

    def blobs(self, name: str) -> list[BlobSnapshot]:
        """Return an item's blobs, by their names."""
        return self._of_item(name, lambda c, _, item_id: stored_blobs.of_item(c, item_id))

    def blob(self, name: str, blob: str) -> Iterator[bytes]:
        """Yield the content of an item's blob, up to a megabyte at a time.

        Of content that the database keeps all comes at once.

        Raises:
            NotFoundError: there is no such item, or it has no such blob; before anything is read.
            BlobStoreError: the store cannot be read, or, at the end, what was read is not what was
                attached.

        """
        return self.open_blob(name, blob).parts()

    def open_blob(self, name: str, blob: str) -> OpenBlob:
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

        place, mime = self._of_item(name, found)
        parts = partial(self._contents.read, place, blob)
        return OpenBlob(blob, place.size, mime, place.sha256.hex(), parts)

    def collect_blobs(self, *, now: bool = False) -> int:
        """Delete contents that no item has had for a day; return how many.

        With `now` it is not waited for: also what was written a moment ago goes. Workers do it by
        themselves, for the contents of the database and of the store that they write to.
        """
        return self._contents.collect(now=now)

    def _with_contents(self, prepared: Prepared, run: Callable[[Connection], T]) -> T:
        """Run what attaches contents, once they are stored."""
        contents = []
        for one, name in zip(prepared.operations, prepared.names, strict=True):
            if isinstance(one, AttachBlob):
                contents.append(one.content)
                try:
                    self._contents.measure(one.content)
                except OperationError as error:
                    raise OperationError(f"{name}: AttachBlob: {error}") from None
        while True:
            self._contents.store(contents)
            try:
                return self._call(run)
            except stored_blobs.ContentsGoneError as gone:
                for content in contents:
                    if content.number in gone.numbers:
                        content.number = content.announced = None
