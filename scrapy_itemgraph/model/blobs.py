"""Blobs: binary data of items, by name; what is known of one, and content on its way to a store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.exceptions import InvalidDataError
from scrapy_itemgraph.model import input_checks

if TYPE_CHECKING:
    from datetime import datetime

DATABASE = "database"
"""What ITEMGRAPH_BLOBS is where content is kept in the database itself."""

MOST_IN_DATABASE = 16 * 1024 * 1024  # bytes of one content
CHUNK = 1024 * 1024  # bytes that are read or written at a time
MAX_MIME_BYTES = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobSnapshot:
    """A blob of an item as it was committed when it was read; `sha256` is hexadecimal."""

    name: str
    size: int
    mime: str | None
    sha256: str
    attached_at: datetime


@dataclass(slots=True, eq=False, repr=False)
class Content:
    """The content of one blob: its bytes, or the file that has them.

    Digest and size are known once it was read. `announced` is the number of its row while it is
    written, `number` once a store has it.
    """

    data: bytes | None = None
    path: Path | None = None
    digest: bytes = b""  # SHA-256
    size: int = 0  # bytes
    announced: int | None = None
    number: int | None = None

    def __repr__(self) -> str:
        return f"<content of {self.path or f'{self.size:,} bytes'}>"

    @property
    def weight(self) -> int:
        """How many bytes of memory it takes."""
        return 0 if self.data is None else len(self.data)


def content_of(given: Any) -> tuple[Content, str | None]:
    """Return the content that an operation was given, and the mime type of a response.

    Raises:
        InvalidDataError: it is of another type.

    """
    if isinstance(given, Content):
        return given, None
    if isinstance(given, bytes | bytearray | memoryview):
        data = bytes(given)
        return Content(data=data, size=len(data)), None
    if isinstance(given, Path):
        return Content(path=given), None
    body, headers = getattr(given, "body", None), getattr(given, "headers", None)
    if isinstance(body, bytes) and headers is not None:
        return Content(data=body, size=len(body)), _mime_of(headers)
    hint = "; a path is a pathlib.Path, and text is encoded first" if isinstance(given, str) else ""
    raise InvalidDataError(
        f"content must be bytes, a Response or a pathlib.Path, not {type(given).__name__}{hint}"
    )


def check_mime(mime: Any) -> str | None:
    """Return a mime type that can be stored."""
    if mime is None:
        return None
    if not isinstance(mime, str) or not mime:
        raise InvalidDataError(f"mime must be a text such as 'image/png', not {mime!r:.80}")
    input_checks.check_text(mime, "mime")
    if len(mime.encode()) > MAX_MIME_BYTES:
        raise InvalidDataError(f"mime has more than {MAX_MIME_BYTES} bytes: {mime[:60]!r}…")
    return mime


def too_large(size: int) -> str:
    """Return what is said of content that the database does not take."""
    return (
        f"content of {size:,} bytes is more than the {MOST_IN_DATABASE:,} that the database keeps; "
        "set ITEMGRAPH_BLOBS to a folder or to a URL such as s3://bucket/prefix"
    )


def _mime_of(headers: Any) -> str | None:
    """Return the Content-Type of a response, unless it cannot be stored."""
    raw = headers.get("Content-Type")
    mime = raw.decode("latin-1") if isinstance(raw, bytes) else raw
    if not isinstance(mime, str):
        return None
    mime = mime.replace("\0", "").strip()
    return mime if 0 < len(mime.encode()) <= MAX_MIME_BYTES else None
