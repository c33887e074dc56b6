"""The layout of graphs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_itemgraph.web.pages.drawing import Edge, Node, drawn

keys = st.sampled_from("abcdefgh")


def boxes(edges, names="abcdefgh"):
    """Draw a graph, and return its boxes by key."""
    found = drawn([Node(name, name * 5) for name in names], [Edge(*pair) for pair in edges])
    return {box.node.key: box for box in found.boxes}


def test_what_is_needed_stands_left_of_what_needs_it() -> None:
    """An edge leads to the right, also past a layer."""
    found = boxes(["ab", "bc", "ac"], "abc")

    assert found["a"].x < found["b"].x < found["c"].x


def test_what_nothing_leads_to_stands_beside_what_it_leads_to() -> None:
    """A node without edges to it is drawn just before the first that it leads to."""
    found = boxes(["ab", "bc", "dc"], "abcd")

    assert found["d"].x == found["b"].x


@given(st.lists(st.tuples(keys, keys), max_size=20))
def test_any_graph_is_drawn_without_boxes_over_boxes(edges) -> None:
    """Circles, loops and edges twice are no obstacle; every node has a place of its own."""
    names = "abcdefgh"
    found = drawn([Node(name, name * 5, ("line",)) for name in names], [Edge(*e) for e in edges])

    assert len(found.boxes) == len(names)
    assert len(found.curves) == sum(start != end for start, end in edges)
    for number, one in enumerate(found.boxes):
        assert one.x >= 0
        assert one.y >= 0
        assert one.x + one.width <= found.width
        assert one.y + one.height <= found.height
        for other in found.boxes[number + 1 :]:
            apart = one.x + one.width <= other.x or other.x + other.width <= one.x
            assert apart or one.y + one.height <= other.y or other.y + other.height <= one.y


@pytest.mark.parametrize("title", ["WWWWWWWW", "0123456789", "漢字漢字", "abcdef", "…MM%"])
def test_a_box_is_as_wide_as_its_title(title) -> None:
    """Wide letters make a wider box than narrow ones, also in a broad bold font."""
    (box,) = drawn([Node("a", title)], []).boxes
    (narrow,) = drawn([Node("a", "i" * len(title))], []).boxes

    assert box.width >= 20 + 8 * len(title)
    assert narrow.width < box.width


def test_layers_begin_at_the_top_where_that_is_asked_for() -> None:
    """A lone box beside many stands in their middle, or beside the first."""
    nodes, edges = [Node(name, name) for name in "abcd"], [Edge("a", name) for name in "bcd"]
    tops = [
        [box.y for box in drawn(nodes, edges, from_top=from_top).boxes]
        for from_top in (True, False)
    ]

    assert tops[0][0] == min(tops[0])
    assert tops[1][0] > min(tops[1])


def test_an_edge_to_nowhere_is_left_out() -> None:
    """An edge needs two nodes."""
    assert drawn([Node("a", "a")], [Edge("a", "b"), Edge("a", "a")]).curves == []
    assert drawn([], []).boxes == []
