"""Validators: what of a response's headers is kept, and how it is sent back."""

from __future__ import annotations

import json

import pytest

from scrapy_itemgraph.model.validators import Validators

URL = "http://a/"


@pytest.mark.parametrize("etag", [None, b"", b"x" * 1001, b'"a\tb"', b'"a\x00"', b"\x85"])
def test_what_cannot_be_sent_back_is_not_kept(etag):
    """A header that is missing, long, or has characters of control."""
    assert Validators.of(URL, etag, None) is None


def test_what_is_kept_is_read_back():
    """Every byte of a header is."""
    etag = bytes([*range(0x21, 0x7F), *range(0xA1, 0xAD)])
    kept = Validators.of(URL, etag, b"Wed, 21 Oct 2015 07:28:00 GMT", digest="0f")

    assert kept is not None
    assert kept.headers["If-None-Match"] == etag
    assert kept.headers["If-Modified-Since"] == b"Wed, 21 Oct 2015 07:28:00 GMT"
    assert Validators.read(json.loads(kept.as_json())) == kept


@pytest.mark.parametrize("stored", [None, [], "x", {}, {"url": URL, "since": "another release"}])
def test_what_another_release_has_stored_is_not_used(stored):
    """A claim goes on, and its page is fetched in full."""
    assert Validators.read(stored) is None
