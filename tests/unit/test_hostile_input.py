"""Whatever comes from outside is read, or refused by an error of ours: nothing else is raised.

A small dose runs with all tests; `make fuzz` runs a hundred times as much, with new examples.
"""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import pytest
import scrapy
from hypothesis import given, settings
from hypothesis import strategies as st
from scrapy.exceptions import UsageError
from scrapy.http import Request, Response

from scrapy_itemgraph.commands import COMMANDS, parsing
from scrapy_itemgraph.exceptions import ItemGraphError
from scrapy_itemgraph.model import input_checks, item_names, periods, slots
from scrapy_itemgraph.model.operations import CLASSES, Operation, checked, from_json
from scrapy_itemgraph.serialize import json_values, requests
from scrapy_itemgraph.worker.downloads import robots, site_feedback

TIMES = int(os.environ.get("ITEMGRAPH_FUZZ", "1"))
fuzzed = settings(max_examples=100 * TIMES, derandomize=TIMES == 1)

ANY_TEXT = st.text(st.characters(codec=None), max_size=40)
SPICE = st.sampled_from(
    [
        "",
        "\0",
        "\ud800",
        "²",
        "9" * 400,
        "-1",
        "nan",
        "inf",
        "1e999",
        "__tag__",
        "http://[",
        "a" * 3000,
    ]
)
TEXT = st.one_of(ANY_TEXT, SPICE)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-(10**30), 10**30), st.floats(), TEXT
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXT, inner, max_size=4)),
    max_leaves=12,
)
FIELDS = sorted(
    {name for cls in CLASSES.values() for name in cls.__dataclass_fields__}
    | {"notBefore", "failIfExists", "mergeTags", "ifTaken", "op"}
)
VERBS = [name[0].lower() + name[1:] for name in CLASSES]


class Shop(scrapy.Spider):
    """A spider that stored requests may name methods of."""

    name = "shop"

    def parse(self, response):
        """Do nothing."""

    def parse_item(self, response, page=1):
        """Do nothing."""


@fuzzed
@given(
    st.sampled_from(VERBS),
    st.dictionaries(st.sampled_from(FIELDS), st.one_of(VALUES, st.just("A")), max_size=6),
)
def test_an_operation_as_json_is_read_or_refused(verb, document):
    """An operation that is taken can be stored: it passed the checks that are made at a yield."""
    try:
        operation = checked(from_json({"op": verb, **document}), "line 1")
    except ItemGraphError:
        return
    assert isinstance(operation, Operation)
    for value in vars(operation).values():
        json.dumps(value, default=repr, ensure_ascii=False).encode()


@fuzzed
@given(VALUES)
def test_any_value_of_json_in_the_place_of_an_operation_is_refused(document):
    """Also what is no object at all."""
    if isinstance(document, dict) and document.get("op") in {*VERBS, *CLASSES}:
        return
    with pytest.raises(ItemGraphError):
        from_json(document)


@fuzzed
@given(VALUES)
def test_a_stored_value_is_loaded_or_refused(value):
    """What somebody else wrote into the database is data, and at worst an error of ours."""
    with suppress(ItemGraphError):
        json_values.load(value)


STORED = {
    "url": st.one_of(TEXT, st.just("http://shop.example/1"), VALUES),
    "callback": st.one_of(st.sampled_from(["parse", "parse_item", "start", "__init__"]), VALUES),
    "errback": st.one_of(st.sampled_from(["parse"]), VALUES),
    "method": VALUES,
    "headers": VALUES,
    "body": VALUES,
    "cookies": VALUES,
    "meta": VALUES,
    "cb_kwargs": VALUES,
    "encoding": VALUES,
    "priority": VALUES,
    "dont_filter": VALUES,
    "flags": VALUES,
    "class": st.one_of(
        st.sampled_from(
            ["scrapy.http.request.Request", "scrapy.FormRequest", "os.system", "subprocess.Popen"]
        ),
        VALUES,
    ),
    "attributes": VALUES,
    "other": VALUES,
}


@fuzzed
@given(st.fixed_dictionaries({}, optional=STORED))
def test_a_stored_request_is_made_or_refused(stored):
    """A damaged row is the failure of its own item, and names no class and no method freely."""
    try:
        request = requests.load(stored, Shop())
    except ItemGraphError:
        return
    assert isinstance(request, Request)


@fuzzed
@given(TEXT, VALUES)
def test_an_id_is_taken_as_it_is_or_refused(text, value):
    """What is taken has a key and a label, and can be sent to PostgreSQL."""
    for given_id in (text, value):
        try:
            name = input_checks.check_id(given_id)
        except (ItemGraphError, TypeError, ValueError):
            continue
        assert name == given_id
        assert "\0" not in name
        name.encode()
        assert item_names.hex_key(name)
        assert isinstance(item_names.label(name, {"url": value}), str)


@fuzzed
@given(st.one_of(VALUES, st.builds("{}://{}/{}".format, TEXT, TEXT, TEXT)))
def test_any_url_has_a_slot_or_none(url):
    """A slot can be stored and is no longer than a host may be."""
    for slot in (slots.of_url(url), slots.slot_of({"url": url, "download_slot": url})):
        assert len(slot.encode()) <= slots.MAX_BYTES


@fuzzed
@given(TEXT)
def test_a_period_is_read_or_refused(text):
    """As settings, `ttl` and commands take it."""
    for parse in (periods.parse_period, periods.parse_ttl):
        try:
            period = parse(text, "ttl")
        except (ItemGraphError, TypeError, ValueError):
            continue
        assert period is None or isinstance(period, timedelta)


def answer(**headers: str) -> Response:
    """Return a busy site's answer with these headers."""
    given_headers = {
        name.replace("_", "-"): value.encode("latin-1", "replace")
        for name, value in headers.items()
    }
    return Response("http://shop.example/", status=503, headers=given_headers)


DATES = st.builds(
    "{}, {} {} {} {}:{}:{} {}".format,
    st.sampled_from(["Mon", "Sun", "x", ""]),
    st.integers(-1, 99999),
    st.sampled_from(["Jan", "Feb", "Foo"]),
    st.integers(-5, 10**9),
    st.integers(-1, 99),
    st.integers(-1, 99),
    st.integers(-1, 99),
    st.sampled_from(["GMT", "+9999", "-0000", "EST", "+99999999", ""]),
)


@fuzzed
@given(st.one_of(TEXT, DATES, st.integers().map(str)), st.one_of(st.none(), TEXT, DATES))
def test_retry_after_is_read_or_passed_over(asked, date):
    """Whatever a site asks for, it waits no longer than ITEMGRAPH_MAX_RETRY_AFTER."""
    headers = {"Retry_After": asked} if date is None else {"Retry_After": asked, "Date": date}

    seconds = site_feedback.retry_after(answer(**headers), 3600.0)

    assert seconds is None or seconds <= 3600


@fuzzed
@given(
    st.one_of(
        st.binary(max_size=300),
        st.lists(
            st.builds(
                "{}: {}".format,
                st.sampled_from(
                    ["User-agent", "Crawl-delay", "Request-rate", "Visit-time", "Allow", "Sitemap"]
                ),
                st.one_of(
                    TEXT,
                    st.sampled_from(["*", "1/0", "0/0", "1/5m 0800-1700", "%zz", "-1"]),
                    st.floats().map(str),
                ),
            ),
            max_size=8,
        ).map(lambda lines: "\n".join(lines).encode(errors="surrogatepass")),
    ),
    st.sampled_from([200, 204, 404, 503]),
)
def test_robots_txt_is_read_or_passed_over(body, status):
    """A Crawl-delay that is taken from it is none, or from a millisecond to a day."""
    request = Request("http://shop.example/robots.txt", meta={"download_slot": "shop.example"})
    parsed = asyncio.run(robots.parsed(body)).parsed

    found = site_feedback.of_robots(request, status, parsed, "*")

    assert found is None or found.crawl_delay == 0 or 0.001 <= found.crawl_delay <= 86_400


@fuzzed
@given(
    st.sampled_from(sorted(COMMANDS)),
    st.lists(
        st.one_of(
            TEXT,
            st.sampled_from(
                ["-", "--", "--json", "--from", "--task", "--data", "{", "{}", "--tag", "a=1"]
            ),
        ),
        max_size=6,
    ),
)
def test_arguments_of_a_command_are_read_or_misuse(command, arguments):
    """A mistake is told as one, by the command's own usage."""
    with suppress(UsageError):
        parsing.parse(COMMANDS[command], arguments)


@fuzzed
@given(TEXT)
def test_a_value_on_the_command_line_is_read_or_refused(text):
    """What argparse makes a line of: ArgumentTypeError, ValueError or TypeError, or our own."""
    readers: list[Any] = [
        parsing.json_value,
        parsing.json_object,
        parsing.tag,
        parsing.count,
        parsing.period,
        parsing.delay,
        parsing.ttl,
        parsing.point,
        parsing.moment,
    ]
    for read in readers:
        try:
            value = read(text)
        except (parsing.argparse.ArgumentTypeError, ValueError, TypeError, ItemGraphError):
            continue
        if isinstance(value, datetime):
            assert value.tzinfo is not None
