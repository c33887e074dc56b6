"""Answers in JSON: the documents that the command line writes with --json."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from starlette.responses import Response

from scrapy_itemgraph.model import documents

T = TypeVar("T")

JSON = "application/json"


def written(document: Any) -> bytes:
    """Write a document; what is no text, such as half of an emoji, is escaped and not refused."""
    rows = documents.of(document)
    try:
        return json.dumps(rows, ensure_ascii=False, default=documents.plain).encode()
    except UnicodeEncodeError:
        return json.dumps(rows, default=documents.plain).encode()


def answer(document: Any, status: int = 200) -> Response:
    """Return the answer that has a document."""
    return Response(written(document), status, media_type=JSON)


def page(
    rows: Sequence[T],
    limit: int,
    place: Callable[[T], Any],
    row: Callable[[T], Any] = documents.of,
) -> Any:
    """Return the document of a page: its rows, and what to ask for as `after` for the next.

    `next` is null where nothing follows.
    """
    following = str(place(rows[-1])) if len(rows) == limit else None
    return {"rows": [row(one) for one in rows], "next": following}
