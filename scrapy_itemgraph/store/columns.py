"""Columns: rows or records turned into the arrays that a statement unnests."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


def columns(rows: Iterable[Any], **attributes: str) -> dict[str, list[Any]]:
    """Return a list of each named attribute of the rows, which may be dotted, by parameter."""
    rows = list(rows)
    return {name: list(map(attrgetter(path), rows)) for name, path in attributes.items()}
