"""Spiders as users write them crawl the same by Scrapy's own scheduler and by ours.

`ITEMGRAPH_TEST_COMPATIBILITY=stock` compares Scrapy's own scheduler with itself.
"""

from __future__ import annotations

import functools
import json
import os
import re
from typing import TYPE_CHECKING

import pytest
import scrapy
from conftest import new_database
from support import compatibility

if TYPE_CHECKING:
    from collections.abc import Callable

# What the spiders do on purpose, by either scheduler.
pytestmark = [
    pytest.mark.edge,
    pytest.mark.tracebacks(
        "ValueError: no more",
        "CloseSpider",  # of start(), which Scrapy before 2.18 takes for an error
        "AttributeError: 'Bare' object has no attribute",
        "ValueError: after the items",
        "ValueError: midway",
        "ValueError: unreadable",
        "ValueError: torn",
        "in parse_value\n    raise ValueError",
        "KeyError: 'at once'",
        "LookupError: in the errback",
        "unexpected keyword argument 'unknown'",
        "'Failure' object has no attribute 'url'",
        "Object of type bytes is not JSON serializable",
        "ConnectionRefusedError",
        "FileException: download-error",
        "/public_suffix_list.dat",  # tldextract's, where there is no network
        "'Signals.spider_error' was never awaited",
    ),
]

IS_SELF_CHECK = os.environ.get("ITEMGRAPH_TEST_COMPATIBILITY") == "stock"

# What may differ, as patterns of facts by spider, each with its reason.
ACCEPTED = {
    # A request is stored as it was when it was yielded; what is changed later does not show.
    "shared": ['"callback": "Shared.parse_more"'],
    "shared_between": ['"name": "parse_second".*/page/2"'],
}
if (2, 16) <= scrapy.version_info < (2, 19):
    # There each middleware with process_spider_output has others look once more at an error.
    ACCEPTED["spider_middlewares"] = [r'\+ 1 x .*"ValueError".*"process_spider_exception"']

# Each group is crawled in one process, spider after spider.
GROUPS = {
    "starts": [
        "start_urls",
        "start",
        "broken_start",
        "closing_start",
        "bare",
        "lazy",
        "arguments",
        "idle",
        "signals",
        "closing",
        "stopping",
        "counted",
    ],
    "feeding": ["batches", "broker", "slow_start", "idle_reason"],
    "generic": ["rules", "sitemap", "feed", "table"],
    "callbacks": ["kinds", "errbacks", "values", "shared", "shared_between", "inline"],
    "requests": [
        "methods",
        "own_requests",
        "login",
        "sessions",
        "encodings",
        "fingerprints",
        "unfiltered",
        "own_filter",
    ],
    "sites": [
        "redirects",
        "retries",
        "robots",
        "depth",
        "offsite",
        "limits",
        "cached",
        "throttled",
    ],
    "components": [
        "downloader_middlewares",
        "spider_middlewares",
        "pipelines",
        "items",
        "odd_items",
        "files",
    ],
}


@pytest.fixture(scope="module")
def crawls(server_url, template, tmp_path_factory) -> Callable[[str], list[dict]]:
    """Return what gives the crawls of a group's spiders, by stock Scrapy and by ours."""

    @functools.cache
    def crawl(group: str) -> list[dict]:
        with new_database(server_url, template) as url:
            own = compatibility.STOCK if IS_SELF_CHECK else compatibility.ours(url)
            return compatibility.crawl_in_ways(
                tmp_path_factory.mktemp(group), GROUPS[group], compatibility.STOCK, own
            )

    return crawl


@pytest.mark.parametrize(
    ("group", "spider"), [(group, spider) for group, names in GROUPS.items() for spider in names]
)
def test_a_spider_crawls_the_same_by_either_scheduler(crawls, group, spider):
    """Pages, callbacks, arguments, items, signals, stats and files are those of stock Scrapy."""
    stock, ours = (crawl[spider] for crawl in crawls(group))

    different = [
        line
        for line in compatibility.differences(stock, ours)
        if not any(re.search(pattern, line) for pattern in ACCEPTED.get(spider, ()))
    ]

    assert not different, "\n".join(["", *different, ours.log])
    assert IS_SELF_CHECK or "'itemgraph/claimed'" in ours.log
    assert "'itemgraph/claimed'" not in stock.log


def test_the_comparison_sees_what_differs(crawls):
    """Spiders that crawl differently are found different in calls, requests, signals and stats."""
    stock, _ = crawls("generic")

    lines = compatibility.differences(stock["feed"], stock["table"])

    kinds = {(line[0], json.loads(line[line.index("{") :])["kind"]) for line in lines}
    assert kinds == {(sign, of) for sign in "+-" for of in ("callback", "asked", "signal", "stat")}
    assert compatibility.differences(stock["feed"], stock["feed"]) == []
