"""Fingerprints of plain URLs, without what Scrapy's fingerprinter does for all others.

Most of the time of a fingerprint goes into making its URL canonical. A URL of nothing but a host in
lower case and plain path segments is canonical already.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache

from scrapy import Request
from scrapy.utils import request as request_tools

_PLAIN = re.compile(r"https?://[a-z0-9.-]+(?::[0-9]+)?/[A-Za-z0-9/_.-]*").fullmatch
_PROBE = "http://a.example:8000/b/C_d-1.html"


def of_plain_url(url: str) -> str | None:
    """Return Scrapy's fingerprint of a GET request for a URL, as hex; None unless it is plain.

    `url` is that of a Request, which has been made safe.
    """
    if not _is_as_known() or "/." in url or _PLAIN(url) is None:
        return None
    return _of_canonical(url)


def _of_canonical(url: str) -> str:
    text = f'{{"body": "", "headers": {{}}, "method": "GET", "url": "{url}"}}'
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


@cache
def _is_as_known() -> bool:
    """Tell whether the installed Scrapy makes fingerprints of what it made them of so far."""
    return request_tools.fingerprint(Request(_PROBE)).hex() == _of_canonical(_PROBE)
