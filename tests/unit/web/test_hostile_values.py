"""What websites sent, on its way into a page."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_itemgraph.web.pages import links, trees
from scrapy_itemgraph.web.pages.rendering import ENVIRONMENT, part

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=400),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=300), inner),
    max_leaves=20,
)


@pytest.mark.parametrize(
    "address",
    [
        "javascript:alert(1)",
        " javascript:alert(1)",
        "JaVaScRiPt:alert(1)",
        "data:text/html,x",
        "vbscript:x",
        "file:///etc/passwd",
        "//a.example/",
        "/path",
        "http:",
        "http://",
        "https:///x",
        "http://[::1",
        "http://a.example:x/",
        "http://a.example/\u202e",
        "http://a.example/\n",
        "https://a.example/" + "x" * 9000,
        7,
        None,
    ],
)
def test_what_is_no_page_is_no_link(address) -> None:
    """Only whole addresses of http and https, and none too long, become links."""
    assert links.page_link(address) is None


@pytest.mark.parametrize("address", ["http://a.example", "https://ü.example:8443/ü?a=b&c#d"])
def test_pages_are_links(address) -> None:
    """Addresses of pages are left as they are."""
    assert links.page_link(address) == address


@pytest.mark.parametrize(
    "path", ["//evil.example", "/\\evil.example", "https://evil.example", "", "x", "/a\nb"]
)
def test_a_form_leads_back_to_our_own_pages_alone(path) -> None:
    """An address of another host, however it is written, is not gone to."""
    assert links.local(path, "/here") == "/here"
    assert links.local("/crawls/a%2Fb/item?id=x", "/here") == "/crawls/a%2Fb/item?id=x"


@given(JSON)
def test_any_value_is_shown_as_text(value) -> None:
    """No value makes an element of its own, and nothing of it is invisible or steers."""
    template = ENVIRONMENT.from_string('{% import "macros.html" as m %}{{ m.tree(value) }}')
    html = template.render(value={"value": value})

    assert set(re.findall(r"<([a-zA-Z]+)", html)) <= {
        *("ul", "li", "span", "bdi", "details", "summary", "a", "pre"),
    }
    assert html.replace("\n", "").isprintable()


def test_a_tree_is_bounded() -> None:
    """Values of a megabyte, a million entries or a thousand levels stay small."""
    deep: list = []
    for _ in range(500):
        deep = [deep]
    value = {"long": "x" * 1_000_000, "wide": list(range(1_000_000)), "deep": deep}
    template = ENVIRONMENT.from_string('{% import "macros.html" as m %}{{ m.tree(value) }}')
    html = template.render(value=value)

    assert len(html) < 100_000
    assert "1,000,000 characters" in html
    assert f"{1_000_000 - trees.MOST_NODES:,}"[:3] in html


def test_errors_without_a_type_or_message_are_shown() -> None:
    """Whatever was recorded of an error, its line can be written."""
    for error in (None, {}, {"type": None}, {"message": 7}, [], "text"):
        assert part("parts/failures-badge.html", failures_badge=ENVIRONMENT.filters["error"](error))
