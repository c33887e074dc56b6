"""Pages of one URL, of which somebody has to say which is meant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.exceptions import NotFoundError
from scrapy_itemgraph.model import page_differences
from scrapy_itemgraph.store import items as stored_items

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from scrapy_itemgraph.store.page_search import FoundPage

_MOST_LISTED = 10


def error(
    connection: Connection, crawl_id: int, found: Sequence[FoundPage], given: str
) -> NotFoundError:
    """Return the error that lists what was found of a URL, and what to write for each.

    That is the URL with its method and callback. Pages that have these in common are listed by
    their ids, with what their requests carry.
    """
    shown = [one.apart for one in found]
    listed = found[:_MOST_LISTED]
    alike = [one.item for one in listed if shown.count(one.apart) > 1]
    notes = _notes(connection, crawl_id, alike)
    written = [one.item if one.item in notes else one.apart for one in listed]
    said = ", ".join(f"{one!r}{notes.get(one, '')}" for one in written)
    more = f" and {len(found) - _MOST_LISTED:,} more" if len(found) > _MOST_LISTED else ""
    return NotFoundError(
        f"several pages have this URL, {given!r}; say which: {said}{more}", written
    )


def _notes(connection: Connection, crawl_id: int, items: Sequence[str]) -> dict[str, str]:
    """Return what stands behind the ids of pages: what tells them apart, if anything does."""
    differences = page_differences.differences([_data(connection, crawl_id, it) for it in items])
    return {
        item: f" ({said})" if said else "" for item, said in zip(items, differences, strict=True)
    }


def _data(connection: Connection, crawl_id: int, item: str) -> Any:
    found = stored_items.named(connection, crawl_id, item)
    return None if found is None else found.data
