"""Slots: the politeness keys of work, as Scrapy names them."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

NONE = ""
MAX_BYTES = 255
_MOST_ORIGINS = 1000


def slot_of(data: Mapping[str, Any]) -> str:
    """Return the slot that an item's data names: its download slot, its URL's host, or none."""
    slot = data.get("download_slot")
    if not isinstance(slot, str):
        return of_url(data.get("url"))
    return slot if is_usable(slot) else NONE


def is_usable(slot: Any) -> bool:
    """Tell whether a slot can be stored: it is UTF-8, and no host is longer than 255 bytes."""
    try:
        return isinstance(slot, str) and len(slot.encode()) <= MAX_BYTES
    except UnicodeEncodeError:
        return False


def of_url(url: Any) -> str:
    """Return the slot of an item that has this URL, and no download slot: the URL's host.

    The host stands before the first slash after `://`.
    """
    if not isinstance(url, str):
        return NONE
    scheme, _, rest = url.partition("://")
    return _host_of(f"{scheme}://{rest.partition('/')[0]}") if rest else _host_of(url)


@lru_cache(maxsize=_MOST_ORIGINS)
def _host_of(url: str) -> str:
    try:
        host = normal_host(urlsplit(url).hostname or NONE)
    except ValueError:
        return NONE
    return host if is_usable(host) else NONE


def normal_host(host: str) -> str:
    """Return a host as requests have it: a name in other letters than ASCII's becomes `xn--…`."""
    if host.isascii():
        return host
    try:
        return host.encode("idna").decode("ascii").lower()
    except UnicodeError:
        return host
