"""Notifications, each of a topic: a crawl, whose workers it wakes, or one process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

if TYPE_CHECKING:
    from sqlalchemy import Connection

NOTIFY = text("SELECT pg_notify('itemgraph', CAST(:crawl AS text))")

TELL = text("SELECT pg_notify('itemgraph', 'process ' || CAST(:worker AS text))")


def of_crawl(crawl_id: int) -> str:
    """Return the topic of a crawl: there may be work."""
    return str(crawl_id)


def of_process(process_id: int) -> str:
    """Return the topic of one process: what concerns it alone has changed."""
    return f"process {process_id}"


def notify(connection: Connection, crawl_id: int) -> None:
    """Tell the idle workers of a crawl that there may be work."""
    connection.execute(NOTIFY, {"crawl": crawl_id})
