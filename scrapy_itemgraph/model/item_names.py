"""Names of items: the keys that they are indexed by, and how people are told of one."""

from __future__ import annotations

import hashlib
import uuid
from typing import Any

_REQUEST_NAMES = ("REQ:", "START:")  # which say nothing to a person


def name_key(name: str) -> uuid.UUID:
    """Return the key of a name: the first 16 bytes of its SHA-256."""
    return uuid.UUID(bytes=hashlib.sha256(name.encode()).digest()[:16])


def hex_key(name: str) -> str:
    """Return the key of a name as PostgreSQL reads it, and in an order that is the keys'."""
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def is_request(name: str) -> bool:
    """Tell whether a name is that of a request: a page that was fetched without a task."""
    return name.startswith(_REQUEST_NAMES)


def page_of(data: Any) -> tuple[str | None, str | None]:
    """Return the URL in an item's data, and the method when the item is a request's."""
    if not isinstance(data, dict):
        return None, None
    url, request = data.get("url"), data.get("request")
    method = request.get("method", "GET") if isinstance(request, dict) else None
    return url if isinstance(url, str) else None, method if isinstance(method, str) else None


def label(name: str, data: Any) -> str:
    """Return what people read for an item: its id, or for a request's its URL, as `page` has it."""
    return label_of(name, *page_of(data)) if is_request(name) else name


def label_of(name: str, url: str | None, method: str | None) -> str:
    """Return the same of what `page_of` returns."""
    is_of_request = method is not None and is_request(name)
    return (page(url, method) if is_of_request else None) or name


def page(url: str | None, method: str | None) -> str | None:
    """Return a URL with its method before it, unless that is GET."""
    return url if url is None or method in {None, "GET"} else f"{method} {url}"
