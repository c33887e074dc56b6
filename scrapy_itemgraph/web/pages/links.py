"""Addresses: of the cockpit's own pages, and of pages that a crawl has seen."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode, urlsplit

MOST_OF_LINK = 8192  # characters; longer ones are shown as text


def page_link(value: Any) -> str | None:
    """Return the address of a page, or None for what is not http or https, or no address at all.

    What a website put into data is followed by a person's click alone.
    """
    if not isinstance(value, str) or len(value) > MOST_OF_LINK or not value.isprintable():
        return None
    try:
        url = urlsplit(value)
        _ = url.port
    except ValueError:
        return None
    return value if url.scheme in {"http", "https"} and url.hostname else None


def query(**given: Any) -> str:
    """Return a query string of what is not empty, with its question mark.

    A list is given again and again, by each of its values.
    """
    kept = {name: value for name, value in given.items() if value not in (None, "", False, [])}
    return f"?{urlencode(kept, doseq=True)}" if kept else ""


def of_crawl(crawl: str, page: str = "overview", **given: Any) -> str:
    """Return the path of a page of a crawl, below the place where the cockpit is mounted."""
    return f"/crawls/{segment(crawl)}/{page}{query(**given)}"


def segment(name: str) -> str:
    """Return a name as a part of a path, its slashes percent-encoded."""
    return quote(name, safe="")


def local(value: str, default: str) -> str:
    """Return a path of ours to go back to; anything else is replaced by `default`."""
    if value.startswith("/") and not value.startswith(("//", "/\\")) and value.isprintable():
        return value
    return default
