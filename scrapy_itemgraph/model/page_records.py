"""What an attempt tells of its page: how it was answered, how long that took, and its links."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.model import counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

MOST_OF_URL = 2048  # characters that are kept
MOST_REDIRECTS = 20
_CUT = "[…]"
_SIZES = {"received_bytes": "bytes received", "body_bytes": "bytes of body"}
_TIMES = {"seconds_to_first_byte": "to the first byte", "seconds": "in all"}


@dataclass(slots=True)
class PageRecord:
    """How the page of an execution was answered; None and nothing are left out where it is stored.

    `url` is the one that answered last, `redirects` those that led there. `received_bytes` is the
    size of the answer's body as it was sent, `body_bytes` as the callback got it. `first_byte` is
    in how many seconds its head came, `seconds` how long all its downloads took together, without
    the time that they waited for their turn. `links` are the requests that it yielded as work of
    their own, and the items that it created; `refused` those of them that the rules refused.
    """

    status: int | None = None
    url: str | None = None
    redirects: Sequence[str] = ()
    received_bytes: int | None = None
    body_bytes: int | None = None
    first_byte: float | None = None
    seconds: float | None = None
    is_cached: bool = False
    links: int = 0
    refused: int = 0

    def answered(
        self, status: int, url: str, size: int, *, first_byte: float | None, seconds: float
    ) -> None:
        """Take note of an answer of the network; of a redirect or a retry as well."""
        self.status, self.url, self.received_bytes = status, url, size
        self.first_byte = first_byte
        self.seconds = seconds + (self.seconds or 0.0)

    def unanswered(self, url: str, seconds: float) -> None:
        """Take note that nothing answered; what answered before led here."""
        self.status = self.received_bytes = self.first_byte = None
        self.url = url
        self.seconds = seconds + (self.seconds or 0.0)

    def came(
        self, status: int, url: str, size: int, redirects: Iterable[str], *, is_cached: bool
    ) -> None:
        """Take note of the response that the callback, or what refuses it, is given."""
        self.status, self.url, self.body_bytes = status, url, size
        self.redirects = tuple(redirects)
        self.is_cached = is_cached

    def as_json(self, new: int) -> str | None:
        """Return the JSON that is stored, where `new` of the links were new; None of no page."""
        known: dict[str, Any] = {
            "status": self.status,
            "url": None if self.url is None else cut(self.url),
            "redirects": [cut(one) for one in self.redirects[-MOST_REDIRECTS:]] or None,
            "received_bytes": self.received_bytes,
            "body_bytes": self.body_bytes,
            "seconds_to_first_byte": _rounded(self.first_byte),
            "seconds": _rounded(self.seconds),
            "is_cached": self.is_cached or None,
        }
        told = {name: one for name, one in known.items() if one is not None}
        if not told and not self.links:
            return None
        links = {"links": self.links, "new_links": new, "refused_links": self.refused}
        return json.dumps({**told, **links})


def cut(url: str) -> str:
    """Return a URL in as many characters as are kept; what is cut is marked."""
    return url if len(url) <= MOST_OF_URL else url[: MOST_OF_URL - len(_CUT)] + _CUT


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 4)


def shown(page: Any, asked: str | None = None) -> str:
    """Return what is kept of a page in one line; its URL only if it is not the one `asked` for.

    What somebody else wrote into the database is left out where it cannot be.
    """
    return ", ".join(_parts(page if isinstance(page, dict) else {}, asked))


def _parts(page: dict[str, Any], asked: str | None) -> Iterator[str]:
    url, redirects = page.get("url"), page.get("redirects")
    whole = {name: one for name, one in page.items() if type(one) is int}
    spent = {name: one for name, one in page.items() if type(one) in (int, float)}
    if url is not None:
        status = f"http {whole['status']}" if "status" in whole else "no answer"
        yield status if url == asked else f"{status} from {url}"
    if redirects and isinstance(redirects, list):
        yield counts.many(len(redirects), "redirect")
    for name, said in _SIZES.items():
        if name in whole:
            yield f"{whole[name]:,} {said}"
    for name, said in _TIMES.items():
        if name in spent:
            yield f"{spent[name]:.3f}s {said}"
    if page.get("is_cached"):
        yield "from the cache"
    if whole.get("links"):
        yield f"{counts.many(whole['links'], 'link')}, {whole.get('new_links', 0):,} new"
    if whole.get("refused_links"):
        yield f"{whole['refused_links']:,} refused"
