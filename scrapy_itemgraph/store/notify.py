"""Notifications: what wakes the workers of a crawl, or one worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

if TYPE_CHECKING:
    from sqlalchemy import Connection

NOTIFY = text("SELECT pg_notify('itemgraph', CAST(:crawl AS text))")

TELL = text("SELECT pg_notify('itemgraph', 'worker ' || CAST(:worker AS text))")


def notify(connection: Connection, crawl_id: int) -> None:
    """Tell the idle workers of a crawl that there may be work."""
    connection.execute(NOTIFY, {"crawl": crawl_id})
