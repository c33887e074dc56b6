"""Rows that a statement returns, typed; and records turned into the arrays that one unnests."""

from __future__ import annotations

from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import CursorResult

T = TypeVar("T", bound=NamedTuple)


def typed(result: CursorResult[Any], kind: type[T]) -> list[T]:
    """Return the rows as named tuples, whose fields are the columns in their order."""
    assert tuple(result.keys()) == kind._fields, (tuple(result.keys()), kind._fields)
    return list(map(kind._make, result))


def columns(rows: Iterable[Any], **picked: str | int) -> dict[str, list[Any]]:
    """Return a list of what is picked of each row, by parameter: an attribute, or a place.

    An attribute may be dotted, and a place is counted from 0.
    """
    rows = list(rows)
    getters = {
        name: itemgetter(what) if isinstance(what, int) else attrgetter(what)
        for name, what in picked.items()
    }
    return {name: list(map(getter, rows)) for name, getter in getters.items()}
