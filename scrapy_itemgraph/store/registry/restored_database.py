"""What a database does not have any more that a worker saw committed.

So it is after a standby was promoted that was behind, and where a backup was restored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.store import attempts, lost_commit_answers
from scrapy_itemgraph.store.columns import typed
from scrapy_itemgraph.store.worklist import claims

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime
    from uuid import UUID

    from sqlalchemy import Connection

    from scrapy_itemgraph.model.work import Claim

IS_CRAWL = text("SELECT EXISTS (SELECT FROM crawls WHERE id = :crawl AND name = :name)")

# Holds off claims of this worker, and waits for those under way. A number alone tells little: a
# database that lacks it gives it to the next worker.
HOLD_OWN_WORKER = text("""
    SELECT w.has_started, p.stopped_at IS NULL AS lives
    FROM processes p JOIN workers w ON w.id = p.id
    WHERE p.id = :worker AND p.started_at = :since
    FOR NO KEY UPDATE OF p
""")

RELEASE_OTHERS = text("""
    UPDATE work w SET token = NULL, worker_id = NULL, claimed_at = NULL
    WHERE w.worker_id = :worker AND w.token IS NOT NULL
        AND w.token <> ALL (CAST(:tokens AS uuid[]))
    RETURNING w.item_id, w.queue_id
""")

NUMBERS = text("""
    SELECT l.kind, l.name, l.id
    FROM unnest(CAST(:kinds AS text[]), CAST(:names AS text[])) AS known(kind, name)
    JOIN limits l ON l.kind = known.kind AND l.name = known.name
""")


class OwnWorker(NamedTuple):
    """What the database knows of this worker."""

    has_started: bool
    lives: bool


def is_crawl(connection: Connection, crawl_id: int, name: str) -> bool:
    """Tell whether a crawl is there, by this number and name."""
    return bool(connection.scalar(IS_CRAWL, {"crawl": crawl_id, "name": name}))


def hold_own_worker(connection: Connection, worker_id: int, since: datetime) -> OwnWorker | None:
    """Return what is known of the worker that registered then, and let it claim nothing meanwhile.

    None if it is not there.
    """
    rows = connection.execute(HOLD_OWN_WORKER, {"worker": worker_id, "since": since})
    found = typed(rows, OwnWorker)
    return found[0] if found else None


def release_others(connection: Connection, worker_id: int, in_hand: Collection[UUID]) -> int:
    """Give back a worker's claims but for those in hand; return how many it had beside."""
    given = {"worker": worker_id, "tokens": list(in_hand)}
    rows = connection.execute(RELEASE_OTHERS, given).all()
    claims.reopen(connection, [row.item_id for row in rows], [row.queue_id for row in rows])
    return len(rows)


def has_ended(connection: Connection, claim: Claim, crawl_id: int) -> bool:
    """Tell whether the end of a claim is on record."""
    if attempts.recorded(connection, [claim], crawl_id):
        return True
    return bool(lost_commit_answers.noted(connection, [claim.token]))


def numbers_of_limits(
    connection: Connection, known: Collection[tuple[str, str]]
) -> Mapping[tuple[str, str], int]:
    """Return the numbers that limits have, by kind and name, as far as they are there."""
    given = {"kinds": [kind for kind, _ in known], "names": [name for _, name in known]}
    return {(row.kind, row.name): row.id for row in connection.execute(NUMBERS, given)}
