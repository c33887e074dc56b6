"""Slots: the politeness keys of work, by name in the code and by number in the tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from sqlalchemy import text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sqlalchemy import Connection

NONE = ""
MAX_BYTES = 255

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


def slot_of(data: Mapping[str, Any]) -> str:
    """Return the slot that an item's data names: its download slot, its URL's host, or none."""
    slot = data.get("download_slot")
    if not isinstance(slot, str):
        slot = _host(data.get("url"))
    return slot if is_usable(slot) else NONE


def is_usable(slot: Any) -> bool:
    """Tell whether a slot can be stored: no host is longer than 255 bytes."""
    return isinstance(slot, str) and len(slot.encode()) <= MAX_BYTES


def intern(connection: Connection, names: Iterable[str]) -> dict[str, int]:
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


def queue(connection: Connection, crawl_id: int, slot_id: int) -> int:
    """Return the number of a crawl's queue of a slot, made when it is new."""
    key = {"crawl": crawl_id, "slot": slot_id}
    connection.execute(MAKE_QUEUE, key)
    return int(connection.execute(FIND_QUEUE, key).scalar_one())


def _host(url: Any) -> str:
    try:
        return normal_host((isinstance(url, str) and urlsplit(url).hostname) or NONE)
    except ValueError:
        return NONE


def normal_host(host: str) -> str:
    """Return a host as requests have it: a name in other letters than ASCII's becomes `xn--…`."""
    if host.isascii():
        return host
    try:
        return host.encode("idna").decode("ascii").lower()
    except UnicodeError:
        return host


def _find(connection: Connection, names: list[str]) -> dict[str, int]:
    return {row.name: row.id for row in connection.execute(FIND_SLOTS, {"names": names})}
