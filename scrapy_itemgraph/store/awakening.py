"""Crawls that came to their end and get new work: they wait for their turn again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.model.crawl_states import Event, State
from scrapy_itemgraph.store import crawl_events, notify

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

BY = "new work"
"""Who brings a crawl back that nobody has revived."""

# Its place in the queue is a new one, behind all who wait. What the last processes of a run commit
# that its spider has closed is left with the rest of it.
AWAKEN = text("""
    UPDATE crawls c SET state = 'active', state_reason = NULL, next_at = NULL, crashes = 0,
        queued_at = clock_timestamp()
    WHERE c.id = :crawl AND c.state = 'finished'
        AND NOT EXISTS (
            SELECT FROM sweeps s WHERE s.crawl_id = c.id AND s.left_run = c.run)
    RETURNING c.nice, c.concurrency, c.tag, CAST(c.queued_at AS text) AS queued_at,
        CAST(c.next_at AS text) AS next_at,
        (SELECT l.name FROM limits l WHERE l.id = c.resource_id) AS resource
""")


# Work opens the last run of a crawl again: whoever is started goes on with it. Until then it stands
# as it ended.
CONTINUE = text("""
    UPDATE runs r SET is_finished = false, is_closed = false, continued_at = clock_timestamp()
    FROM crawls c
    WHERE c.id = :crawl AND r.crawl_id = c.id AND r.number = c.run AND r.is_finished
""")


def awaken(connection: Connection, crawl_ids: Iterable[int]) -> int:
    """Have crawls that came to their end go on with their last run; return how many these were.

    Aborted and paused ones stay as they are. The transaction may lock the queue now.
    """
    wanted = sorted(set(crawl_ids))
    if not wanted:
        return 0
    crawl_events.lock_queue(connection)
    found = {one: connection.execute(AWAKEN, {"crawl": one}).first() for one in wanted}
    awake = {crawl_id: row._asdict() for crawl_id, row in found.items() if row is not None}
    for crawl_id, terms in awake.items():
        connection.execute(CONTINUE, {"crawl": crawl_id})
        told = {"state": State.ACTIVE, "reason": None, **terms}
        crawl_events.note(connection, crawl_id, BY, Event.AWAKENED, **told)
    if awake:
        notify.tell_runners(connection)
    return len(awake)
