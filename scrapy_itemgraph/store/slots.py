"""The numbers of limits, slots among them, and the order in which they are locked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from scrapy_itemgraph.postgres.event_loop import sorted_chunks
from scrapy_itemgraph.store.columns import columns

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection, CursorResult

    Key = tuple[str, str]  # kind and name
    SentLimits = CursorResult[*tuple[Any, ...]]

FIND_LIMITS = text("""
    SELECT l.kind, l.name, l.id
    FROM unnest(CAST(:kinds AS text[]), CAST(:names AS text[])) AS wanted(kind, name)
    JOIN limits l ON l.kind = wanted.kind AND l.name = wanted.name
""")

MAKE_LIMITS = text("""
    INSERT INTO limits (kind, name)
    SELECT * FROM unnest(CAST(:kinds AS text[]), CAST(:names AS text[])) ON CONFLICT DO NOTHING
""")

# In the order of their ids, so that nobody waits in a circle.
LOCK_LIMITS = text("""
    SELECT l.id FROM unnest(CAST(:limits AS int[])) AS wanted(id)
    JOIN limits l ON l.id = wanted.id
    FOR NO KEY UPDATE OF l
""")


def intern_limits(connection: Connection, keys: Iterable[Key]) -> dict[Key, int]:
    """Return the numbers of limits by kind and name, and make those that are new."""
    return _interned(connection, sorted(set(keys)))


def send_slots(connection: Connection, names: Iterable[str]) -> SentLimits:
    """Ask for slots that may be needed; `intern_slots` takes the answer."""
    return _send(connection, [("slot", name) for name in sorted(set(names))])


def intern_slots(
    connection: Connection, names: Iterable[str], sent: SentLimits | None = None
) -> dict[str, int]:
    """Do so for slots, by their names, of which a page may link to a great many.

    `sent` is what `send_slots` returned.
    """
    wanted = set(names)
    numbers: dict[str, int] = {}
    if sent is not None and wanted:
        numbers = {name: number for _, name, number in sent if name in wanted}
    for part in sorted_chunks(connection, wanted - numbers.keys()):
        found = _interned(connection, [("slot", name) for name in part])
        numbers.update((name, number) for (_, name), number in found.items())
    return numbers


def lock_limits(connection: Connection, limit_ids: Iterable[int]) -> None:
    """Lock limits, slots among them, in the order in which all do."""
    connection.execute(LOCK_LIMITS, {"limits": sorted(limit_ids)}).all()


def _interned(connection: Connection, wanted: list[Key]) -> dict[Key, int]:
    """Return the numbers of limits, sorted by kind and name, and make those that are new."""
    found = _find(connection, wanted)
    missing = [key for key in wanted if key not in found]
    if missing:
        connection.execute(MAKE_LIMITS, columns(missing, kinds=0, names=1))
        found |= _find(connection, missing)
    return found


def _find(connection: Connection, keys: list[Key]) -> dict[Key, int]:
    if not keys:
        return {}
    return {(kind, name): number for kind, name, number in _send(connection, keys)}


def _send(connection: Connection, keys: list[Key]) -> SentLimits:
    return connection.execute(FIND_LIMITS, columns(keys, kinds=0, names=1))
