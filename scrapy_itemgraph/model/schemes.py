"""Schemes of URLs: which of them stored data may have fetched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scrapy_itemgraph.exceptions import OperationError

WEB = frozenset({"http", "https"})
_PLAIN = ("http://", "https://")

REQUEST = "request"  # the key of data under which the scheduler keeps a Request
SCHEME = "scheme"  # the key of a stored request that says which other scheme the spider yielded


def scheme_of(url: str) -> str:
    """Return the scheme of a URL, in small letters."""
    return url.partition(":")[0].strip().lower()


def is_web(url: str) -> bool:
    """Tell whether a URL is fetched over http or https."""
    return url.startswith(_PLAIN) or scheme_of(url) in WEB


def mark_of(url: str) -> dict[str, str]:
    """Return what a stored request has beside a URL that a spider yielded: nothing for the web."""
    return {} if is_web(url) else {SCHEME: scheme_of(url)}


def check_given(data: Any) -> None:
    """Check the request in data that comes from outside a crawl, if there is one.

    Only the scheduler stores a request to another scheme than http and https, and marks it so.

    Raises:
        OperationError: the request has another scheme, or that mark.

    """
    request = data.get(REQUEST) if isinstance(data, Mapping) else None
    if not isinstance(request, Mapping):
        return
    if SCHEME in request:
        raise OperationError(
            f"data['request'] has the key {SCHEME!r}, which only the scheduler writes; leave it out"
        )
    url = request.get("url", data.get("url"))
    if isinstance(url, str) and not is_web(url):
        raise OperationError(
            f"data['request'] is for {url!r:.80}; from outside the project's code only http and "
            "https are fetched. If you mean it, have the spider yield the Request"
        )
