"""Conditional requests, and digests of responses: they tell that a page is unchanged.

The validators of a response are kept with its result. The next request sends them to the same URL
only, because a redirect may lead elsewhere by now.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b
from http import HTTPStatus
from typing import TYPE_CHECKING

from scrapy.exceptions import IgnoreRequest

from scrapy_itemgraph.exceptions import ItemGraphError
from scrapy_itemgraph.model.tasks import BODY
from scrapy_itemgraph.model.validators import Validators

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.http import Response

    from scrapy_itemgraph.worker.executions.execution import Leg

_OURS = ("If-None-Match", "If-Modified-Since")
_OF_PROJECTS = (*_OURS, "If-Match", "If-Unmodified-Since", "If-Range", "Range")


class NotModifiedError(IgnoreRequest):
    """The response shows that a page is unchanged; neither callback nor errback is called."""

    def __init__(self, response: Response) -> None:
        super().__init__(f"{response.url} is as it was")
        self.response = response


def ask(request: Request, leg: Leg, *, most: int) -> None:
    """Add the known validators to a request, unless it has conditions of its own.

    After `most` answers 304 in a row the page is fetched once in full.
    """
    known = leg.execution.known_validators
    assert known is not None
    if known.unchanged >= most or request.method != "GET":
        return
    if request.url.partition("#")[0] != known.url:
        return
    if any(name in request.headers for name in _OF_PROJECTS):
        return
    request.headers.update(known.headers)
    leg.execution.is_conditional = bool(known.headers)


def withdraw(request: Request, leg: Leg) -> bool:
    """Remove the validators, because callbacks copy requests; tell whether it had some."""
    had = leg.is_own and leg.execution.is_conditional
    if had:
        for name in _OURS:
            request.headers.pop(name, None)
        leg.execution.is_conditional = False
    return had


def look(response: Response, request: Request, leg: Leg, spider: Spider) -> None:
    """Keep the validators of a response to a claim's own request.

    Raises:
        NotModifiedError: when the page is unchanged: a 304 that was asked for, or an equal digest.

    """
    execution, task = leg.execution, leg.execution.task
    if not leg.is_own or task is None or not task.keeps_validators:
        return
    was_asked, known = withdraw(request, leg), execution.known_validators
    if response.status == HTTPStatus.NOT_MODIFIED and was_asked:
        assert known is not None
        execution.validators = replace(known, unchanged=known.unchanged + 1)
        raise NotModifiedError(response)
    is_whole = not {"dataloss", "download_stopped"} & set(response.flags)
    if response.status != HTTPStatus.OK or request.method != "GET" or not is_whole:
        return
    if response.request is None:  # Scrapy sets it a moment later
        response.request = request
    headers = response.headers
    execution.validators = Validators.of(
        response.url.partition("#")[0],
        headers.get(b"ETag"),
        headers.get(b"Last-Modified"),
        digest=None if task.unchanged_if is None else _digest(response, task.unchanged_if, spider),
        code=execution.code,
    )
    new = execution.validators
    if known is not None and new is not None and known.digest == new.digest is not None:
        raise NotModifiedError(response)


def _digest(response: Response, what: str, spider: Spider) -> str:
    """Return a digest of the part of a response that is compared."""
    counts = response.body if what == BODY else getattr(spider, what)(response)
    if isinstance(counts, str):
        counts = counts.encode(errors="surrogatepass")
    if not isinstance(counts, bytes):
        raise ItemGraphError(f"unchanged_if={what!r} returned {counts!r:.80}; return text or bytes")
    return blake2b(counts, digest_size=16).hexdigest()
