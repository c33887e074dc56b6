"""What attempts tell of their pages, as it is stored and shown."""

from __future__ import annotations

import json

import pytest

from scrapy_itemgraph.model.page_records import MOST_OF_URL, PageRecord, shown

URL = "https://a.example/"


def test_a_record_adds_up_downloads_and_tells_of_the_last_answer():
    """MNB-13: redirects and retries take their time; what is not known is left out."""
    record = PageRecord()
    record.answered(302, URL, 10, first_byte=0.25, seconds=0.5)
    record.answered(200, URL + "on", 20, first_byte=0.125, seconds=0.25)
    record.came(200, URL + "on", 40, [URL], is_cached=False)
    record.links = 3

    assert json.loads(record.as_json(2) or "") == {
        "status": 200,
        "url": URL + "on",
        "redirects": [URL],
        "received_bytes": 20,
        "body_bytes": 40,
        "seconds_to_first_byte": 0.125,
        "seconds": 0.75,
        "links": 3,
        "new_links": 2,
        "refused_links": 0,
    }


def test_what_did_not_answer_has_no_status():
    """MNB-13: an answer that led to a page which did not answer is not told as its own."""
    record = PageRecord()
    record.answered(302, URL, 10, first_byte=0.25, seconds=0.5)
    record.unanswered(URL + "on", 1.5)

    told = json.loads(record.as_json(0) or "")
    assert (told["url"], told["seconds"]) == (URL + "on", 2.0)
    assert not {"status", "received_bytes", "seconds_to_first_byte"} & told.keys()
    assert shown(told, URL) == f"no answer from {URL}on, 2.000s in all"


def test_nothing_is_stored_of_no_page_and_long_urls_are_cut():
    """MNB-13: a task that asks no website tells nothing; URLs have a bound."""
    record = PageRecord()
    assert record.as_json(0) is None
    record.came(200, URL + "x" * 10_000, 40, [URL] * 100, is_cached=True)
    told = json.loads(record.as_json(0) or "")
    assert len(told["url"]) == MOST_OF_URL
    assert len(told["redirects"]) == 20


@pytest.mark.parametrize("stored", [[], 3, {"url": 3, "seconds": "x", "redirects": 5}, {}, None])
def test_what_somebody_else_wrote_is_shown_as_far_as_it_can_be(stored):
    """MNB-13: a row that people changed breaks no list."""
    assert shown(stored) in {"", "no answer from 3"}
