"""Places of runners that are locked to one crawl."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from scrapy_itemgraph.exceptions import NotFoundError, OperationError
from scrapy_itemgraph.model.crawl_states import Event
from scrapy_itemgraph.store import notify
from scrapy_itemgraph.store.crawl_events import lock_queue, note
from scrapy_itemgraph.store.registry.crawl_queue import managed
from scrapy_itemgraph.tools.wording import closest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

INDEFINITELY, UNTIL_FINISHED = "indefinitely", "until finished"

RUNNERS = text("SELECT name, id FROM runners ORDER BY name")

PLACES = text("""
    SELECT number, locked_to FROM places WHERE runner_id = :runner
    ORDER BY (locked_to IS NULL) DESC, (crawl_id IS NULL) DESC, number
    FOR NO KEY UPDATE
""")

LOCK = text("""
    UPDATE places SET locked_to = :crawl, lock = :lock, kept_for = NULL
    WHERE runner_id = :runner AND number = :number
""")

UNLOCK = text("""
    UPDATE places p SET locked_to = NULL, lock = NULL
    FROM runners r
    WHERE r.id = p.runner_id AND p.locked_to = :crawl
    RETURNING r.name AS runner, p.number AS place
""")


def lock(
    connection: Connection, name: str, runner: str, place: int | None, *, for_: str, by: str
) -> int:
    """Lock a place of a runner to a crawl, which nobody else gets then; return its number.

    Without `place` it is a free one, or else the first that is locked to nobody.

    Raises:
        NotFoundError: there is no such crawl in the queue, runner or place.
        OperationError: the place is locked to another crawl, or all are.

    """
    lock_queue(connection)
    crawl = managed(connection, name)
    known = {row.name: row for row in connection.execute(RUNNERS)}
    if runner not in known:
        listed = ", ".join(known) or "none yet; scrapy itemgraph work starts one"
        raise NotFoundError(
            f"there is no runner {runner!r}{closest(runner, known)}; there are {listed}"
        )
    found = connection.execute(PLACES, {"runner": known[runner].id}).all()
    number = _place(found, crawl.id, runner, place)
    given = {"runner": known[runner].id, "number": number, "crawl": crawl.id, "lock": for_}
    connection.execute(LOCK, given)
    note(connection, crawl.id, by, Event.LOCKED, runner=runner, place=number, lock=for_)
    notify.tell_runners(connection)
    return number


def _place(found: Sequence[Any], crawl_id: int, runner: str, place: int | None) -> int:
    wanted = [row for row in found if place in {None, row.number}]
    if not wanted:
        raise NotFoundError(f"the runner {runner} has no place {place}; it has {len(found)}")
    free = [row for row in wanted if row.locked_to in {None, crawl_id}]
    if not free:
        which = f"place {place}" if place else "each place"
        raise OperationError(
            f"{which} of the runner {runner} is locked to another crawl; scrapy itemgraph runners "
            f"show {shlex.quote(runner)} says to which, crawls unlock frees it"
        )
    return int(free[0].number)


def unlock(connection: Connection, name: str, *, by: str) -> list[tuple[str, int]]:
    """Unlock all places of a crawl; return their runners and numbers."""
    lock_queue(connection)
    crawl = managed(connection, name)
    rows = connection.execute(UNLOCK, {"crawl": crawl.id}).all()
    for row in rows:
        note(connection, crawl.id, by, Event.UNLOCKED, runner=row.runner, place=row.place)
    if rows:
        notify.tell_runners(connection)
    return [(row.runner, row.place) for row in rows]
