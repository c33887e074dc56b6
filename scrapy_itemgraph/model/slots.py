"""Slots: the politeness keys of work, as Scrapy names them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

NONE = ""
MAX_BYTES = 255


def slot_of(data: Mapping[str, Any]) -> str:
    """Return the slot that an item's data names: its download slot, its URL's host, or none."""
    slot = data.get("download_slot")
    if not isinstance(slot, str):
        slot = _host(data.get("url"))
    return slot if is_usable(slot) else NONE


def is_usable(slot: Any) -> bool:
    """Tell whether a slot can be stored: no host is longer than 255 bytes."""
    return isinstance(slot, str) and len(slot.encode()) <= MAX_BYTES


def _host(url: Any) -> str:
    try:
        return normal_host((isinstance(url, str) and urlsplit(url).hostname) or NONE)
    except ValueError:
        return NONE


def normal_host(host: str) -> str:
    """Return a host as requests have it: a name in other letters than ASCII's becomes `xn--…`."""
    if host.isascii():
        return host
    try:
        return host.encode("idna").decode("ascii").lower()
    except UnicodeError:
        return host
