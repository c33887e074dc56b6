"""Rulesets of crawls: each is written once, and one is in force; who changes rules makes the next.

Claims read which one that is. Whoever puts another one in force locks the crawl's row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from scrapy_itemgraph.model import input_checks
from scrapy_itemgraph.model.crawl_states import Event
from scrapy_itemgraph.model.rules import Ruleset, StoredRuleset
from scrapy_itemgraph.store import notify
from scrapy_itemgraph.store.crawl_events import lock_queue, note

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Row

_COLUMNS = "r.id, r.number, r.rules, r.created_at, r.created_by, r.note"

IN_FORCE = text(f"""
    SELECT {_COLUMNS} FROM crawls c JOIN rulesets r ON r.id = c.ruleset_id WHERE c.id = :crawl
""")  # noqa: S608 - our own columns

ONE = text(f"SELECT {_COLUMNS} FROM rulesets r WHERE r.id = :ruleset")  # noqa: S608 - likewise

NUMBERED = text(f"""
    SELECT {_COLUMNS} FROM rulesets r WHERE r.crawl_id = :crawl AND r.number = :number
""")  # noqa: S608 - our own columns

LIST = text(f"""
    SELECT {_COLUMNS} FROM rulesets r WHERE r.crawl_id = :crawl AND r.number < :before
    ORDER BY r.number DESC LIMIT :limit
""")  # noqa: S608 - our own columns

LOCK = text("SELECT ruleset_id FROM crawls WHERE id = :crawl FOR NO KEY UPDATE")

ID_IN_FORCE = text("SELECT ruleset_id FROM crawls WHERE id = :crawl")

NUMBER = text("SELECT number FROM rulesets WHERE id = :ruleset")

ADD = text("""
    INSERT INTO rulesets (crawl_id, number, rules, created_at, created_by, note)
    VALUES (:crawl, :number, CAST(:rules AS json), clock_timestamp(), :by, :note)
    RETURNING id
""")

PUT = text("UPDATE crawls SET ruleset_id = :ruleset WHERE id = :crawl")

# Rules that are being applied to what waits are those in force.
RESTART_SWEEP = text("""
    UPDATE sweeps s SET ruleset_id = c.ruleset_id, task_id = NULL, after_item_id = 0
    FROM crawls c WHERE c.id = s.crawl_id AND s.crawl_id = :crawl AND s.ruleset_id IS NOT NULL
""")

LOCK_SWEEP = text("""
    SELECT FROM sweeps WHERE crawl_id = :crawl AND ruleset_id IS NOT NULL FOR NO KEY UPDATE
""")

_LAST = 2**31 - 1


def in_force(connection: Connection, crawl_id: int) -> StoredRuleset:
    """Return the ruleset that a crawl's claims keep to now; an empty one where it never had any."""
    row = connection.execute(IN_FORCE, {"crawl": crawl_id}).first()
    return StoredRuleset() if row is None else _stored(row)


def id_in_force(connection: Connection, crawl_id: int) -> int | None:
    """Return the number in the database of the ruleset in force; None where it never had any."""
    found: int | None = connection.execute(ID_IN_FORCE, {"crawl": crawl_id}).scalar()
    return found


def one(connection: Connection, ruleset_id: int) -> StoredRuleset | None:
    """Return a ruleset by its number in the database; None where its crawl was deleted."""
    row = connection.execute(ONE, {"ruleset": ruleset_id}).first()
    return None if row is None else _stored(row)


def numbered(connection: Connection, crawl_id: int, number: int) -> StoredRuleset | None:
    """Return a crawl's ruleset by its number of that crawl; None where there is none."""
    row = connection.execute(NUMBERED, {"crawl": crawl_id, "number": number}).first()
    return None if row is None else _stored(row)


def rulesets(
    connection: Connection, crawl_id: int, *, before: int | None = None, limit: int = 100
) -> Sequence[StoredRuleset]:
    """Return a crawl's rulesets, the newest first, of those with a number below `before`."""
    asked = {"crawl": crawl_id, "before": _LAST if before is None else before, "limit": limit}
    return [_stored(row) for row in connection.execute(LIST, asked)]


def put(
    connection: Connection,
    crawl_id: int,
    ruleset: Ruleset,
    *,
    after: int,
    by: str,
    said: str | None = None,
    why: str | None = None,
) -> StoredRuleset | None:
    """Put rules in force in the place of the ruleset numbered `after`, and tell the processes.

    Return them as they are stored; None where others have been put in force meanwhile. `said` is
    what was done to the rules, for the history, and `why` a note of who did it.
    """
    connection.execute(LOCK_SWEEP, {"crawl": crawl_id})  # as its steps do, before the queue's lock
    lock_queue(connection)
    before = connection.execute(LOCK, {"crawl": crawl_id}).scalar()
    number = 0 if before is None else connection.scalar(NUMBER, {"ruleset": before})
    if number != after:
        return None
    given = {
        "crawl": crawl_id,
        "number": after + 1,
        "rules": input_checks.dump_json(ruleset.as_document, "rules"),
        "by": by,
        "note": why,
    }
    ruleset_id = connection.execute(ADD, given).scalar_one()
    connection.execute(PUT, {"crawl": crawl_id, "ruleset": ruleset_id})
    restart_sweep(connection, crawl_id)
    note(connection, crawl_id, by, Event.RULES, number=after + 1, changed=said, note=why)
    notify.tell_rules(connection, crawl_id)
    return one(connection, ruleset_id)


def restart_sweep(connection: Connection, crawl_id: int) -> bool:
    """Begin anew, with the rules in force, to apply rules to what waits; tell if that was on."""
    return bool(connection.execute(RESTART_SWEEP, {"crawl": crawl_id}).rowcount)


def begin(connection: Connection, crawl_id: int, ruleset: Ruleset, *, by: str) -> None:
    """Put the rules in force with which a crawl is put into the queue, whose lock is held."""
    before = in_force(connection, crawl_id).number
    put(connection, crawl_id, ruleset, after=before, by=by, said="as the crawl was added")


def _stored(row: Row[Any]) -> StoredRuleset:
    return StoredRuleset(
        id=row.id,
        number=row.number,
        ruleset=Ruleset.read(row.rules),
        created_at=row.created_at,
        created_by=row.created_by,
        note=row.note,
    )
