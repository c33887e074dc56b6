"""What tells pages of one URL, method and callback apart."""

from __future__ import annotations

import pytest

from scrapy_itemgraph.model.page_differences import differences


def pages(*requests):
    """Return what is said of pages whose requests carry this."""
    return differences([{"url": "http://a.example/", "request": one} for one in requests])


def test_what_differs_is_said_and_what_is_common_is_not():
    """A body, and values of meta and of the callback's arguments, each by its name."""
    common = {"method": "POST", "meta": {"of": "list", "rank": 1}}

    assert pages(
        {**common, "body": "q=tea", "cb_kwargs": {"page": 1}},
        {**common, "body": "q=milk", "meta": {"of": "list", "rank": 2}},
    ) == [
        'meta rank 1, body "q=tea", cb_kwargs page 1',
        'meta rank 2, body "q=milk", no cb_kwargs page',
    ]


def test_what_differs_is_written_in_one_short_line():
    """Long values are cut, further differences left out, and no line is broken."""
    many = [{"body": letter * 100, **dict.fromkeys("bcd", letter)} for letter in ("\u2028", "y")]

    first, second = pages(*many)

    assert second == f'body "{"y" * 59}…, b "y", c "y"'
    assert first.startswith('body "\\u2028')
    assert first.isprintable()


def test_secrets_are_not_shown():
    """Headers, cookies, values of meta, forms and JSON that look secret are dots; names are said.

    Those that differ in a secret alone are told to. A proxy's password is hidden, and so is what
    nobody can read.
    """
    names = ["Authorization", "Cookie", "X-API-Key", "Proxy-Authorization", "X-Session-Id"]
    carried = [
        *({"headers": {name: ["hunter2"]}} for name in names),
        {"cookies": {"lang": "hunter2"}},
        {"cookies": [{"name": "lang", "value": "hunter2"}]},
        {"meta": {"password": "hunter2"}},
        {"meta": {"login": {"user": "anna", "passwd": "hunter2"}}},
        {"cb_kwargs": {"access_token": "hunter2"}},
        {"meta": {"proxy": "http://anna:hunter2@proxy.example:3128"}},
        {"body": "user=anna&password=hunter2&go=1"},
        {"body": '{"user": "anna", "password": "hunter2", "deep": {"pwd": "hunter2"}}'},
        {"body": "back=https://a.example/?token=hunter2"},
        {"body": {"$": "bytes", "v": "aHVudGVyMg=="}},
    ]

    said = [pages(one, {})[0] for one in carried]

    assert not [one for one in said if "hunter2" in one or "aHVudGVyMg" in one]
    assert said[:6] == [*(f"headers {name} …" for name in names), "cookies lang …"]
    assert said[8] == 'meta login {"passwd": "…", "user": "anna"}'
    assert said[10] == 'meta proxy "http://anna:***@proxy.example:3128"'
    assert said[11] == 'body "user=anna&password=…&go=1"'
    assert said[13:] == ['body "back=https://a.example/?token=…"', 'body "…"']
    assert pages({"headers": {"Cookie": ["a"]}}, {"headers": {"Cookie": ["b"]}}) == [
        "headers Cookie …",
        "headers Cookie …",
    ]
    assert pages({"meta": {"cookiejar": 1}}, {"meta": {"cookiejar": 2}})[0] == "meta cookiejar 1"


@pytest.mark.parametrize("data", [None, [], {"request": None}, {"request": {"body": "a"}}])
def test_nothing_is_said_of_pages_that_carry_the_same(data):
    """Pages that were fetched again and again differ in nothing, nor does what is no page."""
    assert differences([data, data]) == ["", ""]
    assert differences([]) == []
