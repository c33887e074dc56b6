"""What is in blobs, as browsers may have it: it came from a website, and nothing of it may run."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING
from urllib.parse import quote

from starlette.responses import StreamingResponse

if TYPE_CHECKING:
    from collections.abc import Iterator

# Pictures that no browser runs anything of. SVG is none of these: nothing in it runs in an <img>,
# and on its own it is saved.
SHOWN = {"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp"}
DRAWN = "image/svg+xml"
UNKNOWN = "application/octet-stream"
POLICY = "default-src 'none'; sandbox"


def answer(content: Iterator[bytes], name: str, mime: str | None) -> StreamingResponse:
    """Return the answer with a blob's content; only pictures are shown, all else is saved.

    Raises:
        BlobStoreError: the store cannot be read; later that ends the answer before its end.

    """
    first = next(content, b"")
    kind = _kind(mime)
    is_shown = kind in SHOWN
    placed = "inline" if is_shown else "attachment"
    return StreamingResponse(
        chain([first], content),
        media_type=kind if is_picture(mime) else UNKNOWN,
        headers={
            "Content-Disposition": f"{placed}; filename*=UTF-8''{quote(name, safe='')}",
            "Content-Security-Policy": POLICY,
        },
    )


def is_picture(mime: str | None) -> bool:
    """Tell whether an <img> may show what is of a type."""
    return _kind(mime) in {*SHOWN, DRAWN}


def _kind(mime: str | None) -> str:
    return (mime or "").partition(";")[0].strip().lower()
