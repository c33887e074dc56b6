"""Request ids: by what names requests are known, as Scrapy's duplicates filter knows them."""

from __future__ import annotations

import re
import uuid
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from scrapy import Request
from scrapy.dupefilters import BaseDupeFilter, RFPDupeFilter
from scrapy.utils import request as request_tools
from scrapy.utils.misc import build_from_crawler, load_object
from scrapy.utils.request import RequestFingerprinter

from scrapy_itemgraph.exceptions import UnstorableError
from scrapy_itemgraph.model import input_checks, item_names, page_names
from scrapy_itemgraph.model.request_operations import WHENEVER
from scrapy_itemgraph.serialize import requests
from scrapy_itemgraph.tools.caches import LastValues, SeenTexts

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.crawler import Crawler

    from scrapy_itemgraph.worker.executions.execution import Execution

_PLAIN = re.compile(r"https?://[a-z0-9.-]+(?::[0-9]+)?/[A-Za-z0-9/_.-]*").fullmatch
_PROBE = "http://a.example:8000/b/C_d-1.html"
_LONGEST_FINGERPRINT = 64
_MOST_NAMES = 20_000


@dataclass(frozen=True, slots=True)
class Identity:
    """The name of a request's item; what is of a run before the number `again` is fetched again."""

    name: str
    is_filtered: bool
    again: int | None = None


class RequestIds:
    """Names requests: those that are filtered by their fingerprint, others each by its place."""

    def __init__(self, crawler: Crawler) -> None:
        cls = load_object(crawler.settings["DUPEFILTER_CLASS"])
        if cls is not BaseDupeFilter and not issubclass(cls, RFPDupeFilter):
            cls = RFPDupeFilter  # what another would remember stands in the database
        self.dupefilter: BaseDupeFilter = build_from_crawler(cls, crawler)
        self._fingerprinter = crawler.request_fingerprinter
        self._starts = SeenTexts()  # a list of them may be as long as the crawl
        self._repeated: Counter[str] = Counter()  # of those, what was yielded more than once
        # Scrapy's own fingerprint is of the URL, the method and the body.
        is_scrapys = type(self.dupefilter) in {BaseDupeFilter, RFPDupeFilter}
        self._goes_by_url = is_scrapys and type(self._fingerprinter) is RequestFingerprinter
        self._names: LastValues[str, str] = LastValues(_MOST_NAMES)  # by URL

    def start_again(self) -> None:
        """Name what `start()` yields as the first time: it is run once more."""
        self._starts = SeenTexts()
        self._repeated.clear()

    def of_start(self, request: Request, spider: Spider, run: int) -> Identity:
        """Return the identity of a request that `start()` yields: once in each run."""
        if self._is_filtered(request):
            return Identity(self.name(request), is_filtered=True, again=run)
        try:
            callback = requests.callback_name(request, spider)
        except UnstorableError:  # it will be carried, and has no item
            callback = ""
        name = f"START:{self._fingerprint(request)}:{callback}"
        if self._starts.add(name):
            self._repeated[name] += 1
            name = f"{name}:{self._repeated[name] + 1}"
        return Identity(name, is_filtered=False, again=run)

    def of_child(self, request: Request, parent: Execution | None) -> Identity:
        """Return the identity of a request that a callback, or nobody in particular, yields."""
        if self._is_filtered(request):
            return Identity(self.name(request), is_filtered=True)
        if parent is None or parent.claim is None:
            return Identity(f"{self.name(request)}:{uuid.uuid4().hex}", is_filtered=False)
        name = f"{self.name(request)}:{item_names.name_key(parent.claim.item.id).hex}"
        parent.copies[name] += 1
        name = f"{name}:{parent.copies[name]}"
        return Identity(name, is_filtered=False, again=WHENEVER)

    def of_target(self, request: Request) -> str | None:
        """Return the name that where a redirect leads is known by; None if it is not filtered."""
        return input_checks.check_id(self.name(request)) if self._is_filtered(request) else None

    def name(self, request: Request) -> str:
        """Return what a filtered request is known by."""
        if not self.is_plain(request):
            return f"REQ:{self._fingerprint(request)}"
        url = request.url
        name = self._names.get(url)
        if name is None:
            name = f"REQ:{plain_fingerprint(url) or self._fingerprint(request)}"
            self._names.put(url, name)
        return name

    def is_plain(self, request: Request) -> bool:
        """Whether nothing but its URL decides what a request is known by."""
        return (
            self._goes_by_url
            and request.method == "GET"
            and not request.body
            and "verbatim_url" not in request.meta
        )

    def _is_filtered(self, request: Request) -> bool:
        return not request.dont_filter and type(self.dupefilter) is not BaseDupeFilter

    def _fingerprint(self, request: Request) -> str:
        if isinstance(self.dupefilter, RFPDupeFilter):
            return self.dupefilter.request_fingerprint(request)
        fingerprint = self._fingerprinter.fingerprint(request)
        if len(fingerprint) > _LONGEST_FINGERPRINT:
            return item_names.name_key(fingerprint.hex()).hex
        return fingerprint.hex()


def plain_fingerprint(url: str) -> str | None:
    """Return Scrapy's fingerprint of a GET request for a URL, as hex; None unless it is plain.

    `url` is that of a Request, which has been made safe. Most of the time of a fingerprint goes
    into making its URL canonical: one of nothing but a host in lower case and plain path segments
    is so already.
    """
    if not _is_as_known() or "/." in url or _PLAIN(url) is None:
        return None
    return page_names.fingerprint(url)


@cache
def _is_as_known() -> bool:
    """Tell whether the installed Scrapy makes fingerprints of what it made them of so far."""
    return request_tools.fingerprint(Request(_PROBE)).hex() == page_names.fingerprint(_PROBE)
