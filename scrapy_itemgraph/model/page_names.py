"""Pages as people name them: by a URL, and what other URLs and names they may have meant."""

from __future__ import annotations

import hashlib
import re
from itertools import product
from typing import TYPE_CHECKING, NamedTuple, Protocol
from urllib.parse import SplitResult, urlsplit

from w3lib.url import canonicalize_url, safe_url_string

from scrapy_itemgraph.model import item_names

if TYPE_CHECKING:
    from collections.abc import Iterator

# A method, unless it is GET; a URL; the callback, where it tells pages of the URL apart.
_ASKED = re.compile(r"(?:([A-Z]+) )?(\S*://\S*)(?: ([^\W\d]\w*))?").fullmatch
_URL = re.compile(r"(?:[A-Z]+ )?[A-Za-z][A-Za-z0-9+.-]*://").match
_PREFIX = re.compile(r"[A-Za-z][\w-]*:(?=https?://)")  # such as URL: of a name that a project gave
_WWW = "www."
_HTTP = ("http", "https")
_PREFIXES = ("", "URL:")
MOST_NEAR = 100  # names that are looked for


class AskedPage(NamedTuple):
    """What a person wrote for a page: `url`, and its `method` and `callback` if they are said."""

    url: str
    method: str | None
    callback: str | None

    def fits(self, method: str | None, callback: str | None) -> bool:
        """Tell whether a page of the URL is meant: what is not said may be any."""
        return self.method in {None, method or "GET"} and self.callback in {None, callback}


class Work(Protocol):
    """A task or callback of an item, and the URL and method in the item's data."""

    @property
    def item(self) -> str:
        """The item's id."""

    @property
    def task(self) -> str:
        """The name of the task."""

    @property
    def url(self) -> str | None:
        """The item's URL, if it has one."""

    @property
    def method(self) -> str | None:
        """The method of its request, if it is one's."""


class NamedWork(NamedTuple):
    """The same, of what was read one by one."""

    item: str
    task: str
    url: str | None
    method: str | None


def asked(given: str) -> AskedPage | None:
    """Return what a text such as `POST http://a.example/ parse` asks for; None: it has no URL."""
    found = _ASKED(given)
    return None if found is None else AskedPage(found[2], found[1], found[3])


def noun(given: str) -> str:
    """Return what people call what they gave: a URL is that of a "page", all else an "item"."""
    return "page" if _URL(given) else "item"


def fingerprint(canonical: str) -> str:
    """Return what Scrapy knows a plain GET request by, of its canonical URL, as hex."""
    text = f'{{"body": "", "headers": {{}}, "method": "GET", "url": "{canonical}"}}'
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def plain_name(url: str) -> str | None:
    """Return the name of the page that a plain GET request to a URL leads to; None: it is no URL.

    Of a page that was redirected the URL where it led gives one of its names.
    """
    try:
        return f"REQ:{fingerprint(canonicalize_url(safe_url_string(url)))}"
    except ValueError:
        return None


def stored_urls(url: str) -> list[str]:
    """Return how a URL may stand in an item's data: as it is, or as Scrapy writes it."""
    try:
        return list(dict.fromkeys((url, safe_url_string(url))))
    except ValueError:
        return [url]


def near(given: str) -> list[str]:
    """Return names and URLs that are written a little differently from one that is not there.

    The slash at its end, the scheme, `URL:` before it, `www.`, capitals of the host, the order of
    its query, percent-encoding, and the fragment.
    """
    page = asked(given)
    if page is None:
        return []
    bare = _PREFIX.sub("", page.url)
    try:
        found = dict.fromkeys(
            f"{prefix}{url}" for prefix, url in product(_PREFIXES, dict.fromkeys(_variants(bare)))
        )
    except ValueError:
        return []
    found.pop(given, None)
    return list(found)[:MOST_NEAR]


def _variants(url: str) -> Iterator[str]:
    """Yield a URL in other forms, those that differ least first.

    Raises:
        ValueError: it is none.

    """
    wholes = [url, canonicalize_url(safe_url_string(url)), safe_url_string(url)]
    for whole in dict.fromkeys(wholes):
        parts = urlsplit(whole)
        lower = parts._replace(netloc=parts.netloc.lower())
        for one, scheme, netloc, path in product(
            (parts, lower), _schemes(parts), _hosts(lower), _paths(parts)
        ):
            changed = one._replace(scheme=scheme, path=path)
            yield changed._replace(netloc=netloc).geturl()
            yield changed._replace(netloc=netloc, fragment="").geturl()


def _schemes(parts: SplitResult) -> tuple[str, ...]:
    other = {"http": "https", "https": "http"}.get(parts.scheme)
    return (parts.scheme,) if other is None else (parts.scheme, other)


def _hosts(parts: SplitResult) -> tuple[str, str]:
    host = parts.netloc
    return host, host.removeprefix(_WWW) if host.startswith(_WWW) else f"{_WWW}{host}"


def _paths(parts: SplitResult) -> tuple[str, str]:
    path = parts.path
    return path, path.removesuffix("/") if path.endswith("/") else f"{path}/"


def written(name: str, url: str | None, method: str | None, callback: str | None) -> list[str]:
    """Return what a person may write for an item, what reads best first; its name comes last.

    All may lead to other items of the URL, but for the name.
    """
    whole = (item_names.label_of(name, url, method), shown(name, url, method, callback), name)
    return list(dict.fromkeys(whole))


def shown(name: str, url: str | None, method: str | None, callback: str | None) -> str:
    """Return what a person writes for an item, and for a page that its callback tells apart."""
    label = item_names.label_of(name, url, method)
    return f"{label} {callback}" if callback and label != name else label
