"""Queues: a crawl's work of one slot; and the numbers of slots.

All functions take a connection and never commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

FIND_SLOTS = text("""
    SELECT s.name, s.id FROM unnest(CAST(:names AS text[])) AS wanted(name)
    JOIN slots s ON s.name = wanted.name
""")

MAKE_SLOTS = text("""
    INSERT INTO slots (name) SELECT * FROM unnest(CAST(:names AS text[])) ON CONFLICT DO NOTHING
""")

MAKE_QUEUE = text("""
    INSERT INTO queues (crawl_id, slot_id) VALUES (:crawl, :slot) ON CONFLICT DO NOTHING
""")

FIND_QUEUE = text("SELECT id FROM queues WHERE crawl_id = :crawl AND slot_id = :slot")


def intern_slots(connection: Connection, names: Iterable[str]) -> dict[str, int]:
    """Return the numbers of slots by name, and make those that are new."""
    wanted = sorted(set(names))
    if not wanted:
        return {}
    found = _find(connection, wanted)
    missing = [name for name in wanted if name not in found]
    if missing:
        connection.execute(MAKE_SLOTS, {"names": missing})
        found |= _find(connection, missing)
    return found


def intern(connection: Connection, crawl_id: int, slot_id: int) -> int:
    """Return the number of a crawl's queue of a slot, made when it is new."""
    key = {"crawl": crawl_id, "slot": slot_id}
    connection.execute(MAKE_QUEUE, key)
    return int(connection.execute(FIND_QUEUE, key).scalar_one())


def _find(connection: Connection, names: list[str]) -> dict[str, int]:
    return {row.name: row.id for row in connection.execute(FIND_SLOTS, {"names": names})}
