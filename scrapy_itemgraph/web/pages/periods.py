"""How far back a list goes, as its filter says: `1h`, `1d`, `7d`."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scrapy_itemgraph.graph import ItemGraph

_SINCE = {
    "1h": ("the last hour", timedelta(hours=1)),
    "1d": ("the last day", timedelta(days=1)),
    "7d": ("the last week", timedelta(days=7)),
}
LABELS = {name: label for name, (label, _) in _SINCE.items()}


def moment(graph: ItemGraph, since: str) -> datetime | None:
    """Return when a period that lasts until now began; None of what is none."""
    if since not in _SINCE:
        return None
    _, period = _SINCE[since]
    return graph.database.now() - period
