"""Request slots: which of the downloader's slots a request is in."""

from __future__ import annotations

from scrapy import Request
from scrapy.utils.httpobj import urlparse_cached

from scrapy_itemgraph.model import slots

NO_DOWNLOAD = "_itemgraph_no_download"


def slot_of(request: Request) -> str:
    """Return a request's slot, as Scrapy's downloader names it; none without a download."""
    if NO_DOWNLOAD in request.meta:
        return ""
    slot = request.meta.get("download_slot")
    return slot if slot is not None else slots.normal_host(urlparse_cached(request).hostname or "")


def slot_in_use(request: Request) -> str:
    """Return the slot whose limits a request keeps to on its way out; none if it has none.

    Scrapy copies the slot of what led to a redirect, which is another site's.
    """
    slot = request.meta.get("download_slot")
    if slot is None or has_stale_slot(request):
        slot = urlparse_cached(request).hostname or ""
    return slot if slots.is_usable(slot) else slots.NONE


def has_stale_slot(request: Request) -> bool:
    """Whether a request's slot is only that of the host that redirected it here."""
    came_from = request.meta.get("redirect_urls")
    if not came_from:
        return False
    before = urlparse_cached(Request(came_from[-1])).hostname or ""
    here = urlparse_cached(request).hostname or ""
    return before != here and request.meta.get("download_slot") == before
