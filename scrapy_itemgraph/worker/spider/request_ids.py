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
from scrapy_itemgraph.tools import logs
from scrapy_itemgraph.tools.caches import LastValues, SeenTexts
from scrapy_itemgraph.worker import scrapy_internals

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from scrapy import Spider
    from scrapy.crawler import Crawler

    from scrapy_itemgraph.worker.executions.execution import Execution

logger = logs.logger(__name__)

_PLAIN = re.compile(r"https?://[a-z0-9.-]+(?::[0-9]+)?/[A-Za-z0-9/_.-]*").fullmatch
_PROBE = "http://a.example:8000/b/C_d-1.html"
_LONGEST_FINGERPRINT = 64
_MOST_NAMES = 20_000


@dataclass(frozen=True, slots=True)
class Identity:
    """The name of a request's item; what is of a run before the number `again` is fetched again.

    `is_refused`: the project's duplicates filter says that the request was seen. `changed_at` is
    when its page is said to have changed, if somebody says so.
    """

    name: str
    is_filtered: bool
    again: int | None = None
    is_refused: bool = False
    changed_at: datetime | None = None


class AskedFilter:
    """Asks a duplicates filter of the project whether a request was seen.

    The filter may know requests by another name than their fingerprint. It adds that name to the
    set of its parent class. The set is emptied before each call, so that it does not grow, and a
    request that is yielded again passes: its name in the database tells whether it was seen.
    A filter with a memory of its own refuses such a request. One that it let pass before in this
    process passes again: the execution that yielded it may not have been committed.
    """

    def __init__(self, dupefilter: RFPDupeFilter, fingerprint: Callable[[Request], str]) -> None:
        self._dupefilter = dupefilter
        self._fingerprint = fingerprint
        self._passed: LastValues[str, str] = LastValues(_MOST_NAMES)  # names by fingerprint
        self._has_warned = False

    def ask(self, request: Request) -> tuple[str, bool]:
        """Return the name of a request, and whether the filter refuses it."""
        fingerprint = self._fingerprint(request)
        passed = self._passed.get(fingerprint)
        added = scrapy_internals.emptied_fingerprints(self._dupefilter)
        if self._dupefilter.request_seen(request):
            return (f"REQ:{fingerprint}", True) if passed is None else (passed, False)
        if passed is not None and not added:
            self._warn(request)
        name = f"REQ:{_text(*added) if len(added) == 1 else fingerprint}"
        self._passed.put(fingerprint, name)
        return name, False

    def _warn(self, request: Request) -> None:
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "DUPEFILTER_CLASS %s lets %s pass once more, but pages are fetched once by their "
                "fingerprint all the same. Give requests that are to be fetched again "
                "dont_filter=True, or set DUPEFILTER_CLASS to scrapy.dupefilters.BaseDupeFilter",
                type(self._dupefilter).__name__,
                request,
                extra={"action": "dupefilter_lets_pass"},
            )


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
        self._asked: AskedFilter | None = None
        if isinstance(self.dupefilter, RFPDupeFilter) and (
            type(self.dupefilter).request_seen is not RFPDupeFilter.request_seen
        ):
            self._asked = AskedFilter(self.dupefilter, self._fingerprint)

    def start_again(self) -> None:
        """Name what `start()` yields as the first time: it is run once more."""
        self._starts = SeenTexts()
        self._repeated.clear()

    def of_start(self, request: Request, spider: Spider, run: int) -> Identity:
        """Return the identity of a request that `start()` yields: once in each run."""
        if self._is_filtered(request):
            name, is_refused = self._named(request)
            return Identity(name, is_filtered=True, again=run, is_refused=is_refused)
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
            name, is_refused = self._named(request)
            return Identity(name, is_filtered=True, is_refused=is_refused)
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
        return self._named(request)[0]

    def _named(self, request: Request) -> tuple[str, bool]:
        """Return what a request is known by, and whether the project's filter refuses it."""
        if self._asked is not None and not request.dont_filter:
            return self._asked.ask(request)
        return self._name(request), False

    def _name(self, request: Request) -> str:
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


def _text(name: object) -> str:
    """Return what a duplicates filter knows a request by as text of a name."""
    if isinstance(name, bytes):
        return name.hex()
    text = str(name)
    is_short = len(text) <= _LONGEST_FINGERPRINT and text.isprintable()
    return text if is_short else item_names.name_key(text).hex


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
