"""Items as rows of a table: which keys of their data are columns, and what a cell has."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.model import item_names
from scrapy_itemgraph.model.request_operations import OF_REQUESTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from scrapy_itemgraph.model.snapshots import ItemSnapshot

MOMENTS = ("created_at", "updated_at", "completed_at")
# What each row has, before the data. A key of the data with such a name is `data.KEY`.
OWN = ("id", "url", "tags", "aliases", "states", "metadata", *MOMENTS)
_PREFIX = "data."


def data_of(item: ItemSnapshot) -> dict[str, Any]:
    """Return an item's data by column.

    The URL is left out, which is a column of its own; and of a page how it is requested.
    """
    data = item.data if isinstance(item.data, dict) else {}
    _, method = item_names.page_of(data)
    left_out = {"url"} if method is None else OF_REQUESTS
    return {
        f"{_PREFIX}{key}" if key in OWN else key: value
        for key, value in data.items()
        if key not in left_out or (key == "url" and not isinstance(value, str))
    }


def usual(items: Iterable[ItemSnapshot], most: int) -> list[str]:
    """Return the columns of data that most items have, in the order in which they come."""
    seen = Counter(name for item in items for name in data_of(item))
    common = {name for name, _ in seen.most_common(most)}
    return [name for name in seen if name in common]


def known(items: Iterable[ItemSnapshot]) -> list[str]:
    """Return all columns of their data, in the order in which they come."""
    return list(dict.fromkeys(name for item in items for name in data_of(item)))


def tasks_by_state(states: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the names of an item's tasks by their state."""
    found: dict[str, list[str]] = {}
    for task, state in states.items():
        found.setdefault(state, []).append(task)
    return found


def cells(item: ItemSnapshot, columns: Sequence[str]) -> list[Any]:
    """Return an item's data in some columns; None where it has none."""
    data = data_of(item)
    return [data.get(name) for name in columns]
