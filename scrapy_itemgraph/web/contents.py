"""What is in blobs, as browsers may have it: it came from a website, and nothing of it may run."""

from __future__ import annotations

import re
from http import HTTPStatus
from itertools import chain
from typing import TYPE_CHECKING
from urllib.parse import quote

from starlette.responses import StreamingResponse

from scrapy_itemgraph.web.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fastapi import Request, Response
    from starlette.datastructures import Headers

    from scrapy_itemgraph.graph.parts.blobs import OpenBlob

# Pictures that no browser runs anything of. SVG is none of these: nothing in it runs in an <img>,
# and on its own it is saved.
SHOWN = {"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp"}
DRAWN = "image/svg+xml"
UNKNOWN = "application/octet-stream"
POLICY = "default-src 'none'; sandbox"
# One range of bytes. No content has as many as 18 digits can say.
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})", re.IGNORECASE)


def answer(request: Request, blob: OpenBlob) -> Response:
    """Return the answer with a blob's content, or the part of it that is asked for.

    Only pictures are shown, all else is saved.

    Raises:
        Problem: nothing of it is in the part that is asked for.
        BlobStoreError: the store cannot be read; later that ends the answer before its end.

    """
    etag = f'"{blob.sha256}"'
    wanted = _wanted(request.headers, etag, blob.size)
    start, end = wanted or (0, blob.size)
    is_whole = (start, end) == (0, blob.size)
    content = _checked(blob.parts()) if is_whole else _until(blob.parts(start), end - start)
    first = next(content, b"")
    kind = _kind(blob.mime)
    placed = "inline" if kind in SHOWN else "attachment"
    headers = {
        "Accept-Ranges": "bytes",
        "Content-Length": str(end - start),
        "Content-Disposition": f"{placed}; filename*=UTF-8''{quote(blob.name, safe='')}",
        "Content-Security-Policy": POLICY,
        "ETag": etag,
    }
    if wanted is not None:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{blob.size}"
    return StreamingResponse(
        chain([first], content),
        HTTPStatus.OK if wanted is None else HTTPStatus.PARTIAL_CONTENT,
        headers,
        media_type=kind if is_picture(blob.mime) else UNKNOWN,
    )


def _wanted(headers: Headers, etag: str, size: int) -> tuple[int, int] | None:
    """Return where the part that is asked for begins and ends; None: the whole is to be sent.

    The whole is sent too where several parts are asked for, where what is said is no range, and
    where the content is not what `If-Range` says (RFC 9110).
    """
    found = _RANGE.fullmatch(headers.get("range", ""))
    if found is None or headers.get("if-range", etag) != etag:
        return None
    first, last = found.groups()
    if first:
        start, end = int(first), min(int(last) + 1, size) if last else size
        if last and int(last) < start:
            return None
    elif last:
        start, end = max(0, size - int(last)), size
    else:
        return None
    if start >= size:
        said = {"Content-Range": f"bytes */{size}"}
        raise Problem(416, f"it has {size:,} bytes, and none of them is in that range", said)
    return start, end


def _checked(content: Iterator[bytes]) -> Iterator[bytes]:
    """Yield a whole content; its last part when it is known that nothing is wrong with it."""
    last = b""
    for part in content:
        if last:
            yield last
        last = part
    if last:
        yield last


def _until(content: Iterator[bytes], length: int) -> Iterator[bytes]:
    """Yield so many bytes."""
    for part in content:
        yield part[:length]
        length -= len(part)
        if length <= 0:
            return


def is_picture(mime: str | None) -> bool:
    """Tell whether an <img> may show what is of a type."""
    return _kind(mime) in {*SHOWN, DRAWN}


def _kind(mime: str | None) -> str:
    return (mime or "").partition(";")[0].strip().lower()
