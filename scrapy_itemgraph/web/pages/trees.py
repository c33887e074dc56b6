"""JSON as a tree that people read: bounded, folded, and with nothing in it that could run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from scrapy_itemgraph.tools.wording import one_line
from scrapy_itemgraph.web.pages.links import page_link

MOST_NODES = 400
MOST_DEPTH = 12
SHORT = 240  # characters that are shown of a text at once
LONG = 20_000  # characters that are shown when it is opened
_OPEN_DEPTH = 2


@dataclass(slots=True)
class Node:
    """A value: `kind` is object, array, string, number, word (true, false, null) or cut."""

    kind: str
    key: str | None = None
    text: str = ""
    more: str = ""
    left_out: int = 0
    href: str | None = None
    children: list[Node] = field(default_factory=list)
    size: int = 0
    is_open: bool = True


def tree(value: Any) -> Node:
    """Return a value as a tree of at most `MOST_NODES` nodes and about a megabyte of text."""
    budget = [MOST_NODES]
    return _node(None, value, 0, budget)


def lines(text: str) -> str:
    """Return text of several lines as it may be shown: what is invisible or steers is escaped."""
    return "\n".join(one_line(line.expandtabs(4)) for line in str(text).split("\n"))


def _node(key: str | None, value: Any, depth: int, budget: list[int]) -> Node:
    budget[0] -= 1
    name = None if key is None else _cut(one_line(key[:SHORT]), len(key))
    if isinstance(value, dict | list):
        return _container(name, value, depth, budget)
    if isinstance(value, str):
        rest = value[SHORT:LONG]
        return Node(
            "string",
            name,
            lines(value[:SHORT]),
            more=lines(rest),
            left_out=max(0, len(value) - LONG),
            href=page_link(value),
            size=len(value),
        )
    if value is None or isinstance(value, bool):
        return Node("word", name, {None: "null", True: "true", False: "false"}[value])
    text = str(value)
    return Node("number", name, _cut(text[:SHORT], len(text)))


def _container(
    name: str | None, value: dict[str, Any] | list[Any], depth: int, budget: list[int]
) -> Node:
    kind = "object" if isinstance(value, dict) else "array"
    found = Node(kind, name, size=len(value), is_open=depth < _OPEN_DEPTH)
    if depth >= MOST_DEPTH:
        found.children.append(Node("cut", text="deeper values are left out"))
        return found
    entries = value.items() if isinstance(value, dict) else ((None, one) for one in value)
    for number, (key, child) in enumerate(entries):
        if budget[0] <= 0:
            left = len(value) - number
            found.children.append(Node("cut", text=f"{left:,} more"))
            break
        found.children.append(_node(key, child, depth + 1, budget))
    return found


def _cut(text: str, size: int) -> str:
    return text if size <= SHORT else f"{text}… ({size:,} characters)"
