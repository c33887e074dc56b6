"""Which known links are filtered next to the callback that yields them, and which go on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from parts import URL, Parts, running
from scrapy import FormRequest, Request
from scrapy.spidermiddlewares.depth import DepthMiddleware

from scrapy_itemgraph.worker.spider.early_filter import EarlyFilter


class Knowing:
    """Knows every name, in the place of the enqueuer."""

    def is_known(self, name: str, execution: Any) -> bool:
        return True


class Counting:
    """A spider middleware of a project."""


def filter_with(*middlewares: Any, has_tasks: bool = False, **settings: Any) -> tuple[Any, Any]:
    """Return a filter beside these spider middlewares, and an execution of a plain callback."""
    parts = Parts(**settings)
    spidermw = SimpleNamespace(middlewares=middlewares)
    parts.crawler.engine = SimpleNamespace(scraper=SimpleNamespace(spidermw=spidermw))
    parts.duplicates.listen()
    parts.duplicates.filtered(Request(URL))  # the first one is logged; from now on they are counted
    one = EarlyFilter(
        parts.crawler, parts.identities, parts.duplicates, Knowing(), has_tasks=has_tasks
    )
    return one, parts.claimed()


@pytest.mark.parametrize(
    ("middlewares", "given", "is_open"),
    [
        ((DepthMiddleware(0, None),), {}, True),
        ((DepthMiddleware(0, None), Counting()), {}, False),
        ((), {"has_tasks": True}, False),
        ((), {"DEPTH_LIMIT": 3}, False),
        ((), {"DEPTH_STATS_VERBOSE": True}, False),
    ],
)
def test_links_are_filtered_early_where_nobody_else_would_see_them(middlewares, given, is_open):
    """Not beside a middleware of the project, with tasks, or where depths are limited or told."""
    with running():
        one, execution = filter_with(*middlewares, **given)

        assert one.is_open(execution) is is_open


@pytest.mark.parametrize(
    ("output", "is_known"),
    [
        (Request(URL), True),
        (Request(URL, dont_filter=True), False),
        (Request(URL, method="POST"), False),
        (Request(URL, body=b"q=1"), False),
        (FormRequest(URL), False),
        (Request(URL, meta={"itemgraph_ttl": "no period"}), False),
        (Request(URL, meta={"depth_reset": True}), False),
        ({"url": URL}, False),
    ],
)
def test_only_a_plain_link_is_filtered_early(output, is_known):
    """What says more than a URL goes on, so that somebody looks at it."""
    with running():
        one, execution = filter_with()

        assert one.is_known(output, execution) is is_known
