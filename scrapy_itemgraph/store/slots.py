"""The numbers of slots, and the order in which limits are locked, slots among them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

FIND_SLOTS = text("""
    SELECT s.name, s.id FROM unnest(CAST(:names AS text[])) AS wanted(name)
    JOIN limits s ON s.kind = 'slot' AND s.name = wanted.name
""")

MAKE_SLOTS = text("""
    INSERT INTO limits (name) SELECT * FROM unnest(CAST(:names AS text[])) ON CONFLICT DO NOTHING
""")

# In the order of their ids, so that nobody waits in a circle.
LOCK_LIMITS = text("""
    SELECT l.id FROM unnest(CAST(:limits AS int[])) AS wanted(id)
    JOIN limits l ON l.id = wanted.id
    FOR NO KEY UPDATE OF l
""")


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


def lock_limits(connection: Connection, limit_ids: Iterable[int]) -> None:
    """Lock limits, slots among them, in the order in which all do."""
    connection.execute(LOCK_LIMITS, {"limits": sorted(limit_ids)}).all()


def _find(connection: Connection, names: list[str]) -> dict[str, int]:
    return {row.name: row.id for row in connection.execute(FIND_SLOTS, {"names": names})}
