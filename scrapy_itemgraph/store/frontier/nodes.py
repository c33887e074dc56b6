"""Servers of a URL frontier: processes that hand out its URLs, each at an address of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.store.registry import processes

if TYPE_CHECKING:
    from datetime import timedelta

    from sqlalchemy import Connection

    from scrapy_itemgraph.store.registry.processes import NewProcess

# What servers of a frontier are among processes.
KIND = "frontier"

# One that was given up for dead stays as active as it was.
PUT = text("""
    INSERT INTO frontier_nodes (process_id, address, is_active)
    SELECT :process, :address, coalesce(
        (SELECT b.is_active FROM frontier_nodes b WHERE b.process_id = :before), true)
""")


def register(
    connection: Connection,
    address: str,
    *,
    host: str,
    process_id: int,
    lease: timedelta,
    before: int = 0,
) -> NewProcess:
    """Register this process as a server that its clients reach at `address`, which is HOST:PORT.

    `before` is its number until it was given up for dead.
    """
    new = processes.register(connection, KIND, host=host, process_id=process_id, lease=lease)
    connection.execute(PUT, {"process": new.id, "address": address, "before": before})
    return new
