"""Contents of blobs, as they are loaded: their parts are gathered, and then stored."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, TYPE_CHECKING, TypeAlias

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.model.blobs import Content
from scrapy_itemgraph.store import blobs as stored_blobs

if TYPE_CHECKING:
    from sqlalchemy import Connection

Store: TypeAlias = Callable[[Content], None]

_IN_MEMORY = 1024 * 1024  # bytes; a larger content is gathered in a temporary file


class LoadedContents:
    """The contents of one dump, by their hashes in hexadecimal.

    `store` has a content stored in transactions of its own, which gives it its number; the
    connection's transaction holds it from then on.
    """

    def __init__(self, connection: Connection, store: Store) -> None:
        self._connection = connection
        self._store = store
        self._numbers: dict[str, int] = {}
        self._coming: tuple[str, int] | None = None  # hash, and size in bytes
        self._file: IO[bytes] | None = None

    def begin(self, digest: str, size: int) -> None:
        """Take note of a content whose parts come next."""
        self._coming = digest, size
        self._file = SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - closed at its end

    def add(self, part: str) -> None:
        """Take a part, as base64."""
        if self._file is None:
            raise OperationError("there is no content that it is a part of")
        self._file.write(base64.b64decode(part, validate=True))

    def end(self) -> None:
        """Store the content whose parts have come, if there is one."""
        if self._coming is None or self._file is None:
            return
        (digest, size), file = self._coming, self._file
        self._coming = self._file = None
        with file:
            if file.tell() != size:
                raise OperationError(
                    f"the content {digest} has {file.tell():,} bytes instead of {size:,}"
                )
            content = _content(file, size)
            self._store(content)
        if content.digest.hex() != digest:
            raise OperationError(f"the content {digest} is damaged")
        assert content.number is not None
        stored_blobs.hold(self._connection, [content.number])
        self._numbers[digest] = content.number

    def close(self) -> None:
        """Let go of a content whose end did not come."""
        if self._file is not None:
            self._file.close()

    def number(self, digest: str) -> int:
        """Return the number of a content."""
        if digest not in self._numbers:
            raise OperationError(f"the dump has no content {digest}")
        return self._numbers[digest]


def _content(file: IO[bytes], size: int) -> Content:
    if size <= _IN_MEMORY:
        file.seek(0)
        data = file.read()
        return Content(data=data, size=size)
    file.flush()
    return Content(path=Path(f"/proc/self/fd/{file.fileno()}"))
