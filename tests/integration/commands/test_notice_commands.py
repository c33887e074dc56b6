"""Commands of notices: what was written and sent, and a test of each channel."""

from __future__ import annotations

import base64

import pytest
from support.receivers import receiver

from scrapy_itemgraph.store.registry import notices


def test_notices_are_listed_and_tested(scrapy, engine, database):
    """What waits is listed; a test says what each answered, and exits with 1 where one refused."""
    with engine.begin() as connection:
        notices.write(connection, None, "finished", project="shop", crawl="books", reason="left")
        notices.write(connection, None, "runner gone", project="shop", runner="r1")
    listed = scrapy("notices", "list")
    with receiver(500) as failing, receiver() as well:
        urls = f"{failing.url}?k=hidden {well.url}"
        tested = scrapy("notices", "test", ITEMGRAPH_NOTIFY_URLS=urls)
        again = scrapy("notices", "test", "--json", ITEMGRAPH_NOTIFY_URLS=urls)

    of_books = scrapy("--crawl", "books", "notices", "list", "--json").document
    assert listed.code == 0
    assert [one.split()[2:] for one in listed.out.splitlines()[1:]] == [
        ["runner", "gone", "r1", "waits", "0"],
        ["finished", "books", "waits", "0", "left"],
    ]
    assert (tested.code, again.code) == (1, 0)
    assert "500 Internal Server Error" in tested.out
    assert "hidden" not in tested.out + tested.err + again.out
    assert [one["arrival"] for one in again.document] == ["sent", "sent"]
    assert [one["what"] for one in of_books] == ["finished"]
    assert well.documents[0]["text"] == "This is a test of the notices of the project scrapybot"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("URLS", "hooks.example.com/hidden", "number 1 is no URL; write https://…"),
        ("URLS", ["https://a.example", "https:///hidden"], "number 2 has no host"),
        ("SECRET", "hidden, and of sixteen letters", "write whsec_ and a key in base64"),
        ("SECRET", "whsec_aGlkZGVu", "fewer than 24 bytes"),
        ("SECRET", "whsec_hidden!hidden!", "no base64"),
        ("FUNCTION", "tell", "the import path of a function"),
        ("KINDS", "finishd", "did you mean 'finished'"),
        ("IDLE", "10s", "from a minute to a day"),
        ("FAILURES", "1000000", "from 0 to 100000"),
        ("URLS", "", "nobody is told anything yet"),
    ],
)
def test_a_setting_that_cannot_be_says_what_to_write(scrapy, name, value, said):
    """It is named, and no secret of it is shown."""
    ran = scrapy("notices", "test", **{f"ITEMGRAPH_NOTIFY_{name}": value})

    assert ran.code == 1
    assert said in ran.err
    assert f"ITEMGRAPH_NOTIFY_{name}" in ran.err
    assert "hidden" not in ran.err + ran.out


def test_a_secret_of_standard_webhooks_is_taken(scrapy):
    """A secret as libraries make it is taken."""
    secret = "whsec_" + base64.b64encode(b"k" * 24).decode()
    with receiver() as there:
        given = {"ITEMGRAPH_NOTIFY_URLS": there.url, "ITEMGRAPH_NOTIFY_SECRET": secret}
        assert scrapy("notices", "test", **given).code == 0
    assert there.came[0][0]["webhook-signature"].startswith("v1,")
