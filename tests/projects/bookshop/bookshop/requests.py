"""A Request of the project's own, a fingerprinter and a duplicate filter."""

from __future__ import annotations

from scrapy import Request
from scrapy.dupefilters import RFPDupeFilter
from scrapy.utils.request import RequestFingerprinter


class ShopRequest(Request):
    """A request that knows its shop, by an attribute that survives `replace()`."""

    attributes = (*Request.attributes, "shop")

    def __init__(self, *args, shop="main", **kwargs):
        super().__init__(*args, **kwargs)
        self.shop = shop


class SessionlessFingerprinter:
    """Takes pages that differ only in `session` as the same."""

    def __init__(self):
        self.inner = RequestFingerprinter()

    def fingerprint(self, request):
        return self.inner.fingerprint(request.replace(url=request.url.split("?session=")[0]))


class CaselessDupeFilter(RFPDupeFilter):
    """Takes pages whose addresses differ only in case as the same."""

    def request_fingerprint(self, request):
        return super().request_fingerprint(request.replace(url=request.url.lower()))
