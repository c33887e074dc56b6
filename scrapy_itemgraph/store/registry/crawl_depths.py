"""Whether a crawl's pages have a least depth, and from which depth on they are not fetched."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.model.crawl_states import Event
from scrapy_itemgraph.store import crawl_events, notify
from scrapy_itemgraph.store.depths import links, sweeps
from scrapy_itemgraph.store.registry.crawls import own_crawl

if TYPE_CHECKING:
    from sqlalchemy import Connection

TRACKING = text("""
    SELECT tracks_depth, depth_limit, is_depth_limit_set FROM crawls WHERE id = :crawl
""")

SET = text("""
    UPDATE crawls SET tracks_depth = true, depth_limit = :limit, is_depth_limit_set = :is_set
    WHERE id = :crawl
""")

IS_IN_QUEUE = text("SELECT state IS NOT NULL FROM crawls WHERE id = :crawl")


HAS_ITEMS = text("SELECT EXISTS (SELECT FROM items WHERE crawl_id = :crawl)")


class Tracking(NamedTuple):
    """Whether a crawl tracks depth, its limit (None: none), and whether a person set that."""

    tracks_depth: bool
    depth_limit: int | None
    is_depth_limit_set: bool


def tracking(connection: Connection, crawl_id: int) -> Tracking:
    """Return what is so of a crawl."""
    return Tracking(*connection.execute(TRACKING, {"crawl": crawl_id}).one())


def begin(connection: Connection, crawl_id: int, limit: int | None) -> None:
    """Have a crawl track depth, with the limit that its code says unless a person set another."""
    now = tracking(connection, crawl_id)
    if now.tracks_depth and (now.is_depth_limit_set or now.depth_limit == limit):
        return
    own_crawl(connection, crawl_id)
    now = tracking(connection, crawl_id)  # others may have waited for the same
    if not (now.tracks_depth and now.is_depth_limit_set):
        _set(connection, crawl_id, now, limit, is_set=False)


def set_limit(connection: Connection, crawl_id: int, limit: int | None, *, by: str) -> None:
    """Set how deep a crawl's pages may be, for a person; it tracks depth from now on.

    What is freed is claimable shortly; what is claimed ends as it is. Of a crawl in the queue the
    history tells it.
    """
    own_crawl(connection, crawl_id)
    _set(connection, crawl_id, tracking(connection, crawl_id), limit, is_set=True)
    if connection.scalar(IS_IN_QUEUE, {"crawl": crawl_id}):
        crawl_events.lock_queue(connection)
        told = {"depth": "inf" if limit is None else limit}
        crawl_events.note(connection, crawl_id, by, Event.SET, **told)


def find_anew(connection: Connection, crawl_id: int) -> None:
    """Have all depths found anew, from the links that are known.

    Raises:
        OperationError: the crawl does not track depth.

    """
    if not tracking(connection, crawl_id).tracks_depth:
        raise OperationError(
            "the crawl does not track how deep its pages are; ITEMGRAPH_LEAST_DEPTH = True or "
            "crawls set --depth has it do so"
        )
    own_crawl(connection, crawl_id)
    sweeps.open_anew(connection, crawl_id)
    notify.notify(connection, crawl_id)


def _set(
    connection: Connection, crawl_id: int, now: Tracking, limit: int | None, *, is_set: bool
) -> None:
    given = {"crawl": crawl_id, "limit": limit, "is_set": is_set}
    connection.execute(SET, given)
    if not now.tracks_depth:
        has_items = connection.scalar(HAS_ITEMS, {"crawl": crawl_id})
        (sweeps.open_anew if has_items else sweeps.open_missing)(connection, crawl_id)
    elif now.depth_limit != limit:
        low, high = sorted(links.UNREACHED if one is None else one for one in (now[1], limit))
        sweeps.open_range(connection, crawl_id, low + 1, high)
    notify.notify(connection, crawl_id)
