"""Pages that are as they were when their result was made: the website says so, or they look it.

The validators of a response are kept with the result that was made from it. They are sent with the
next request for the URL that they came from, and with no other: a redirect may lead elsewhere now.
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
    """A page is as it was; neither callback nor errback is called."""


def ask(request: Request, leg: Leg, *, most: int) -> None:
    """Add the validators of its claim to a request, unless it has conditions of its own.

    After `most` answers in a row that said that the page is as it was, it is fetched once in full.
    """
    claim = leg.execution.claim
    assert claim is not None
    known = claim.validators
    assert known is not None
    if known.unchanged >= most or request.method != "GET" or request.url != known.url:
        return
    if any(name in request.headers for name in _OF_PROJECTS):
        return
    request.headers.update(known.headers)
    leg.execution.is_conditional = bool(known.headers)


def withdraw(request: Request, leg: Leg) -> None:
    """Take the validators from the request of a redirect or a retry."""
    if leg.is_own and leg.execution.is_conditional:
        for name in _OURS:
            request.headers.pop(name, None)
        leg.execution.is_conditional = False


def look(response: Response, leg: Leg, spider: Spider) -> None:
    """Keep the validators of a response to a claim's own request.

    Raises:
        NotModifiedError: when the page is as it was: the website says so, and was asked, or what
            counts of it is the same.

    """
    execution = leg.execution
    claim, task = execution.claim, execution.task
    if not leg.is_own or claim is None or task is None or not task.keeps_validators:
        return
    known = claim.validators
    if response.status == HTTPStatus.NOT_MODIFIED and execution.is_conditional:
        assert known is not None
        execution.validators = replace(known, unchanged=known.unchanged + 1)
        raise NotModifiedError(f"{response.url} is as it was: HTTP {response.status}")
    if response.status != HTTPStatus.OK:
        return
    headers = response.headers
    digest = None if task.unchanged_if is None else _digest(response, task.unchanged_if, spider)
    execution.validators = Validators.of(
        response.url, headers.get(b"ETag"), headers.get(b"Last-Modified"), digest
    )
    if known is not None and digest is not None and known.digest == digest:
        raise NotModifiedError(f"{response.url} is as it was: {task.unchanged_if}")


def _digest(response: Response, what: str, spider: Spider) -> str:
    """Return a digest of what counts of a response."""
    counts = response.body if what == BODY else getattr(spider, what)(response)
    if isinstance(counts, str):
        counts = counts.encode(errors="surrogatepass")
    if not isinstance(counts, bytes):
        raise ItemGraphError(f"unchanged_if={what!r} returned {counts!r:.80}; return text or bytes")
    return blake2b(counts, digest_size=16).hexdigest()
