"""What happened to crawls that people steer, in the order in which it became true.

Whoever changes the queue's order locks it, and notes what was done in the same transaction. The
lock is taken after a crawl's own and after items and queues, and before rows of `crawls`, `places`
and `jobs`. It is kept for milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from scrapy_itemgraph.model import input_checks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection

    from scrapy_itemgraph.model.crawl_states import Event

LOCK_QUEUE = text("SELECT pg_advisory_xact_lock(CAST('places'::regclass::oid AS int), 0)")

NOTE = text("""
    INSERT INTO crawl_events (crawl_id, at, by, what, detail)
    VALUES (:crawl, clock_timestamp(), :by, :what, CAST(:detail AS json))
    RETURNING id
""")

NOTE_ALL = text("""
    INSERT INTO crawl_events (crawl_id, at, by, what, detail)
    SELECT noted.crawl, clock_timestamp(), noted.by, :what, CAST(noted.detail AS json)
    FROM unnest(CAST(:crawls AS int[]), CAST(:by AS text[]), CAST(:details AS text[]))
        WITH ORDINALITY AS noted(crawl, by, detail, place)
    ORDER BY noted.place
""")


def lock_queue(connection: Connection) -> None:
    """Wait until nobody else changes the queue's order, and keep others from it until the end."""
    connection.execute(LOCK_QUEUE)


def note(connection: Connection, crawl_id: int | None, by: str, what: Event, **detail: Any) -> int:
    """Write down what became true, and who did it; return the event's number.

    The transaction has the queue's lock, so that events have the order in which they became true.
    """
    given = {"crawl": crawl_id, "by": by, "what": what}
    written = {**given, "detail": input_checks.write_json(detail)}
    number: int = connection.execute(NOTE, written).scalar_one()
    return number


def note_all(
    connection: Connection, what: Event, noted: Sequence[tuple[int, str, Mapping[str, Any]]]
) -> None:
    """Write down what became true of several crawls, in order: of each who did it, and its detail.

    The transaction has the queue's lock.
    """
    columns = {
        "what": what,
        "crawls": [crawl_id for crawl_id, _, _ in noted],
        "by": [by for _, by, _ in noted],
        "details": [input_checks.write_json(detail) for _, _, detail in noted],
    }
    connection.execute(NOTE_ALL, columns)
