"""Which links are taken next to the callback that yields them, and which go on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scrapy import FormRequest, Request
from scrapy.http import Response
from scrapy.settings import Settings
from scrapy.spidermiddlewares.depth import DepthMiddleware
from scrapy.spidermiddlewares.referer import NoReferrerPolicy, RefererMiddleware
from scrapy.utils.request import fingerprint
from support.parts import URL, Parts, running

from scrapy_itemgraph.worker.spider.early_links import EarlyLinks
from scrapy_itemgraph.worker.spider.request_ids import plain_fingerprint


class Knowing:
    """Knows every name, in the place of the enqueuer."""

    def is_known(self, name: str, execution: Any) -> bool:
        return True


class Counting:
    """A spider middleware of a project."""


class Policy(NoReferrerPolicy):
    """A referrer policy of a project."""


def referers_by(policy: str) -> RefererMiddleware:
    """Return Scrapy's middleware with a policy."""
    return RefererMiddleware(Settings({"REFERRER_POLICY": policy}))


def links_with(*middlewares: Any, has_tasks: bool = False, **settings: Any) -> Any:
    """Return what takes the links of a plain callback beside these spider middlewares, or None."""
    parts = Parts(**settings)
    spidermw = SimpleNamespace(middlewares=middlewares)
    parts.crawler.engine = SimpleNamespace(scraper=SimpleNamespace(spidermw=spidermw))
    parts.duplicates.listen()
    parts.duplicates.filtered(Request(URL))  # the first one is logged; from now on they are counted
    early = EarlyLinks(
        parts.crawler,
        parts.identities,
        parts.duplicates,
        Knowing(),
        parts.page_rules,
        has_tasks=has_tasks,
    )
    return early.of(parts.claimed(), Response(URL, request=Request(URL)))


@pytest.mark.parametrize(
    ("middlewares", "given", "is_open"),
    [
        ((DepthMiddleware(0, None), referers_by("same-origin")), {}, True),
        ((DepthMiddleware(0, None), Counting()), {}, False),
        ((referers_by(f"{__name__}.Policy"),), {}, False),
        ((), {"has_tasks": True}, False),
        ((), {"DEPTH_LIMIT": 3}, False),
        ((), {"DEPTH_STATS_VERBOSE": True}, False),
    ],
)
def test_links_are_taken_early_where_nobody_else_would_see_them(middlewares, given, is_open):
    """Not beside middlewares or policies of a project, tasks, or where depths matter."""
    with running():
        assert (links_with(*middlewares, **given) is not None) is is_open


@pytest.mark.parametrize(
    ("output", "is_taken"),
    [
        (Request(URL), True),
        (Request(URL, dont_filter=True), False),
        (Request(URL, method="POST"), False),
        (Request(URL, body=b"q=1"), False),
        (FormRequest(URL), False),
        (Request(URL, meta={"itemgraph_ttl": "no period"}), False),
        (Request(URL, meta={"itemgraph_changed_at": "any"}), False),
        (Request(URL, meta={"depth_reset": True}), False),
        (Request(URL, meta={"referrer_policy": "origin"}), False),
        (Request(URL, meta={"verbatim_url": True}), False),
        ({"url": URL}, False),
    ],
)
def test_only_a_plain_link_is_taken_early(output, is_taken):
    """What says more than a URL goes on, so that somebody looks at it."""
    with running():
        assert links_with().takes(output) is is_taken


def test_a_plain_url_has_the_fingerprint_that_scrapy_gives_it():
    """Of the installed Scrapy; all other URLs are left to Scrapy itself."""

    @given(st.from_regex(r"https?://[a-z0-9.-]+(:[0-9]+)?/[A-Za-z0-9/_.~%;?&=#-]*", fullmatch=True))
    @example("http://a.example/b/../c")
    @example("http://a.example/b/c.html")
    def holds(url: str) -> None:
        try:
            request = Request(url)
        except ValueError:
            return
        found = plain_fingerprint(request.url)
        assert found is None or found == fingerprint(request).hex()

    holds()
    assert plain_fingerprint("http://a.example/b/c-1.html") is not None


def test_a_url_that_is_fetched_as_it_stands_has_a_name_of_its_own():
    """Of two requests to one URL the one with `verbatim_url` is another, whichever comes first."""
    url = "http://a.example/?b=2&a=1"
    with running():
        identities = Parts().identities
        names = [
            identities.name(Request(url, meta=meta))
            for meta in ({}, {"verbatim_url": True}, {}, {"verbatim_url": True})
        ]

    assert (
        names
        == [f"REQ:{fingerprint(Request(url, meta=m)).hex()}" for m in ({}, {"verbatim_url": True})]
        * 2
    )
