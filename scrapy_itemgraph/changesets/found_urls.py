"""What a batch made or changed that may be URLs of its crawl's frontier."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_itemgraph.model import frontier
from scrapy_itemgraph.postgres.event_loop import gradually

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from scrapy_itemgraph.changesets.state import State


def tagged(connection: Connection, state: State) -> list[int]:
    """Return the numbers of items that have the tag of URLs, or had it until now."""
    new = gradually(connection, state.new.items())
    found = [number for number, one in new if frontier.TAG in one.operation.tags]
    there = (one for one in state.items.values() if not one.is_deleted)
    return found + [one.id for one in there if frontier.TAG in {*one.tags, *one.dropped_tags}]
