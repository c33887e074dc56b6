"""Which requests ask for a page only if it has changed, and which responses give validators."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from scrapy import Request
from scrapy.http import Response

from scrapy_itemgraph.model.validators import Validators
from scrapy_itemgraph.worker.downloads import revalidation

URL = "http://a.example/"
KNOWN = Validators(url=URL, etag='"1"', unchanged=3)


def leg(known: Validators | None = None, **task) -> SimpleNamespace:
    """Return the leg of a claim's own request."""
    options = {"keeps_validators": True, "unchanged_if": None} | task
    execution = SimpleNamespace(
        task=SimpleNamespace(**options),
        known_validators=known,
        is_conditional=False,
        validators=None,
        code="",
    )
    return SimpleNamespace(is_own=True, execution=execution)


@pytest.mark.parametrize(
    ("request_", "most", "asks"),
    [
        (Request(URL), 50, True),
        (Request(URL + "#part"), 50, True),
        (Request(URL + "other"), 50, False),
        (Request(URL, method="HEAD"), 50, False),
        (Request(URL, headers={"Range": "bytes=0-9"}), 50, False),
        (Request(URL, headers={"If-None-Match": '"own"'}), 50, False),
        (Request(URL), 3, False),
    ],
)
def test_validators_are_added_to_a_plain_get_of_their_url(request_, most, asks):
    """A condition of the project's own stays as it is."""
    own = request_.headers.get("If-None-Match")
    one = leg(KNOWN)

    revalidation.ask(request_, one, most=most)

    assert one.execution.is_conditional is asks
    assert request_.headers.get("If-None-Match") == (b'"1"' if asks else own)


@pytest.mark.parametrize(
    ("method", "status", "flags", "keeps"),
    [
        ("GET", 200, [], True),
        ("GET", 200, ["dataloss"], False),
        ("GET", 200, ["download_stopped"], False),
        ("GET", 404, [], False),
        ("HEAD", 200, [], False),
    ],
)
def test_validators_are_kept_of_whole_pages(method, status, flags, keeps):
    """The rest of a page that came in part would never be asked for."""
    response = Response(URL, status=status, headers={"ETag": '"1"'}, flags=flags)
    one = leg()

    revalidation.look(response, Request(URL, method=method), one, None)

    assert (one.execution.validators is not None) is keeps
