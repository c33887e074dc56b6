"""Drawings of graphs: nodes in layers from left to right, edges as curves between them.

`drawn` decides where everything stands; a template makes the SVG of it.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_LINE = 16  # pixels
_PADDING = 10
_GAP_ACROSS = 78  # between layers; an edge's word stands there
_GAP_DOWN = 16
_MARGIN = 8
_SWEEPS = 6  # of ordering the layers
_FONT = 12  # pixels
# Letters of about the same width, in parts of the font's size: of DejaVu Sans, bold, which is about
# the widest that a browser shows where a page names none. All others are as wide as `_OTHER` says.
_LETTERS = (
    (" '/\\|,.:;-ijlIJf", 0.44),
    ('()[]!tr_`"', 0.53),
    ("ABCDEFGHKLNOPQRSTUVXYZ#+<=>^~&", 0.85),
    ("mwMW@%\N{HORIZONTAL ELLIPSIS}", 1.11),
)
_OTHER = 0.72
_FOREIGN = 0.95  # outside ASCII
_WIDE = 1.05  # Chinese and alike
_WIDTHS = {letter: width for letters, width in _LETTERS for letter in letters}


@dataclass(frozen=True, slots=True)
class Node:
    """A box: its key, title, lines below it, where it leads, and the classes of its style."""

    key: str
    title: str
    lines: tuple[str, ...] = ()
    href: str | None = None
    style: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Edge:
    """An arrow between the nodes of two keys, with a word at it."""

    start: str
    end: str
    word: str = ""
    style: str = ""


@dataclass(slots=True)
class _Place:
    """Where a node stands, or where a long edge passes a layer: then it has no node."""

    layer: int
    node: Node | None = None
    width: float = 0.0
    height: float = 2.0
    room: float = 0.0  # the width of its layer
    x: float = 0.0
    y: float = 0.0
    before: list[_Place] = field(default_factory=list)
    after: list[_Place] = field(default_factory=list)

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


@dataclass(frozen=True, slots=True)
class Box:
    """A node with its place."""

    node: Node
    x: float
    y: float
    width: float
    height: float

    @property
    def baselines(self) -> list[tuple[str, float]]:
        """Each line below the title, and where it is written."""
        first = self.y + _PADDING + 11 + _LINE
        return [(line, first + number * _LINE) for number, line in enumerate(self.node.lines)]

    @property
    def title_y(self) -> float:
        """Where the title is written."""
        return self.y + _PADDING + 11


@dataclass(frozen=True, slots=True)
class Curve:
    """An edge as the path of an SVG, and where its word stands."""

    path: str
    word: str
    style: str
    word_x: float
    word_y: float


@dataclass(frozen=True, slots=True)
class Drawing:
    """All of a drawing, in pixels."""

    width: float
    height: float
    boxes: list[Box]
    curves: list[Curve]


def drawn(nodes: Sequence[Node], edges: Iterable[Edge], *, from_top: bool = False) -> Drawing:
    """Lay a graph out. Edges between keys that have no node are left out, and so are loops.

    Each layer stands in the middle, or begins at the top.
    """
    keys = {node.key for node in nodes}
    kept = [e for e in edges if e.start in keys and e.end in keys and e.start != e.end]
    layers = _drawn_near(_layers(nodes, kept), kept)
    places = {
        node.key: _Place(
            layers[node.key],
            node,
            width=2 * _PADDING
            + max(_width(node.title, 1.0), *(_width(x, 0.9) for x in node.lines), 30.0),
            height=2 * _PADDING - 2 + _LINE * (1 + len(node.lines)),
        )
        for node in nodes
    }
    columns: list[list[_Place]] = [[] for _ in range(max(layers.values(), default=-1) + 1)]
    for place in places.values():
        columns[place.layer].append(place)
    routes = [_route(places[edge.start], places[edge.end], columns) for edge in kept]
    _order(columns)
    width, height = _stand(columns, 0.0 if from_top else 0.5)
    curves = [_curve(edge, route) for edge, route in zip(kept, routes, strict=True)]
    boxes = [Box(p.node, p.x, p.y, p.width, p.height) for p in places.values() if p.node]
    return Drawing(width, height, boxes, curves)


def _layers(nodes: Sequence[Node], edges: Sequence[Edge]) -> dict[str, int]:
    """Give each node the length of the longest way to it; edges back in a circle do not count."""
    after: dict[str, list[str]] = {node.key: [] for node in nodes}
    for edge in edges:
        after[edge.start].append(edge.end)
    finished: list[str] = []  # those that lead nowhere first
    seen: set[str] = set()
    for root in list(after):
        if root not in seen:
            finished += _visited(root, after, seen)
    order = finished[::-1]
    rank = {key: number for number, key in enumerate(order)}
    layers = dict.fromkeys(after, 0)
    for key in order:
        for end in after[key]:
            if rank[end] > rank[key]:
                layers[end] = max(layers[end], layers[key] + 1)
    return layers


def _visited(root: str, after: dict[str, list[str]], seen: set[str]) -> list[str]:
    """Return what is reached from a root and was not seen, each after all that it leads to."""
    finished: list[str] = []
    seen.add(root)
    stack = [(root, iter(after[root]))]
    while stack:
        key, rest = stack[-1]
        end = next((one for one in rest if one not in seen), None)
        if end is None:
            finished.append(key)
            stack.pop()
        else:
            seen.add(end)
            stack.append((end, iter(after[end])))
    return finished


def _drawn_near(layers: dict[str, int], edges: Sequence[Edge]) -> dict[str, int]:
    """Move what nothing leads to right before what it leads to."""
    has_before = {edge.end for edge in edges}
    found = dict(layers)
    for key in layers:
        after = [layers[edge.end] for edge in edges if edge.start == key]
        if key not in has_before and after:
            found[key] = max(0, min(after) - 1)
    return found


def _width(text: str, scale: float) -> float:
    """Return about how many pixels a text takes, rather too many."""
    return scale * _FONT * sum(_letter_width(letter) for letter in text)


def _letter_width(letter: str) -> float:
    if unicodedata.east_asian_width(letter) in "WF":
        return _WIDE
    return _WIDTHS.get(letter, _OTHER if letter.isascii() else _FOREIGN)


def _route(start: _Place, end: _Place, columns: list[list[_Place]]) -> list[_Place]:
    """Join two places, through a place of its own in each layer between them."""
    step = 1 if end.layer > start.layer else -1
    route = [start]
    for layer in range(start.layer + step, end.layer, step):
        place = _Place(layer)
        columns[layer].append(place)
        route.append(place)
    route.append(end)
    for one, other in pairwise(route):
        first, second = (one, other) if one.layer <= other.layer else (other, one)
        first.after.append(second)
        second.before.append(first)
    return route


def _order(columns: list[list[_Place]]) -> None:
    """Order each layer by the mean of its neighbours, forth and back, so that few edges cross."""
    for sweep in range(_SWEEPS):
        forth = sweep % 2 == 0
        for column in columns if forth else reversed(columns):
            at = {id(p): number for c in columns for number, p in enumerate(c)}

            def mean(place: _Place, at: dict[int, int] = at, forth: bool = forth) -> float:
                near = place.before if forth else place.after
                if not near:
                    return at[id(place)]
                return sum(at[id(one)] for one in near) / len(near)

            column.sort(key=mean)


def _stand(columns: list[list[_Place]], share: float) -> tuple[float, float]:
    """Give every place its coordinates; return the drawing's size.

    `share` of the room that a layer leaves is above it.
    """
    heights = [sum(p.height + _GAP_DOWN for p in column) - _GAP_DOWN for column in columns]
    tallest = max(heights, default=0.0)
    x = float(_MARGIN)
    for column, height in zip(columns, heights, strict=True):
        widest = max((place.width for place in column), default=0.0)
        y = _MARGIN + (tallest - height) * share
        for place in column:
            place.x, place.y, place.room = x, y, widest
            if place.node is None:
                place.width = widest  # it passes straight by the boxes of its layer
            y += place.height + _GAP_DOWN
        x += widest + _GAP_ACROSS
    return x - _GAP_ACROSS + _MARGIN, tallest + 2 * _MARGIN


def _curve(edge: Edge, route: list[_Place]) -> Curve:
    """Lead an edge along its route: curves between the layers, straight on within one."""
    forth = route[-1].layer >= route[0].layer
    is_level = route[-1].layer == route[0].layer
    x, y = route[0].x + (route[0].width if forth else 0), route[0].middle
    path = [f"M {x:.1f} {y:.1f}"]
    if forth and not is_level:  # by the wider boxes of its layer
        x = route[0].x + route[0].room
        path.append(f"L {x:.1f} {y:.1f}")
    word_x, word_y = x, y
    for place in route[1:]:
        to_x, to_y = place.x + (0 if forth else place.width), place.middle
        if is_level:  # out at the right, and back to the right
            to_x += place.width
        reach = _GAP_ACROSS * 0.6 if is_level else (to_x - x) / 2
        back = -reach if is_level else reach
        path.append(f"C {x + reach:.1f} {y:.1f} {to_x - back:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}")
        if place is route[1]:
            word_x, word_y = (x + to_x) / 2, (y + to_y) / 2 - 4
        x, y = to_x, to_y
        if place.node is None:
            x += place.width if forth else -place.width
            path.append(f"L {x:.1f} {y:.1f}")
    return Curve(" ".join(path), edge.word, edge.style, word_x, word_y)
