"""Feeds: files and places that a crawl's scraped items are written to, and which are not yet.

A feed is the crawl's, known by the template of its URI. What the journal gets in a run is marked
for each feed that takes part in the run, until it is written: the journal's numbers commit out of
order, so that none of them says how far a feed has come.
"""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.model.feed_exports import FeedItem, FeedState
from scrapy_itemgraph.store.columns import typed

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sqlalchemy import Connection

MAKE = text("""
    INSERT INTO feeds (crawl_id, name) VALUES (:crawl, :name) ON CONFLICT DO NOTHING
""")

FIND = text("""
    SELECT f.id, c.run, f.run IS NOT DISTINCT FROM c.run AS takes_part,
        EXISTS (SELECT FROM feed_items i WHERE i.feed_id = f.id AND NOT i.is_written)
            AS is_unfinished
    FROM feeds f JOIN crawls c ON c.id = f.crawl_id
    WHERE f.crawl_id = :crawl AND f.name = :name
    FOR NO KEY UPDATE OF f
""")

FORGET_ITEMS = text("DELETE FROM feed_items WHERE feed_id = :feed")

BEGIN_ANEW = text("""
    UPDATE feeds SET uri = NULL, batch = 1, count = 0, size = NULL, mark = NULL,
        file = NULL, begins = NULL
    WHERE id = :feed
""")

TAKE_PART = text("UPDATE feeds SET run = :run WHERE id = :feed")

# What the run has kept before the feed took part in it.
MARK_RUN = text("""
    INSERT INTO feed_items (feed_id, journal_id)
    SELECT :feed, j.id FROM journal j
    WHERE j.crawl_id = :crawl
        AND j.id > (SELECT c.run_journal_id FROM crawls c WHERE c.id = :crawl)
    ON CONFLICT (feed_id, journal_id) DO UPDATE SET is_written = false
""")

TAKE = text("""
    UPDATE feeds SET token = :token WHERE id = :feed
    RETURNING uri, batch, count, size, mark, file, begins
""")

FENCE = text("UPDATE feeds SET token = NULL WHERE id = ANY (CAST(:feeds AS int[]))")

ADVANCE = text("""
    UPDATE feeds SET uri = :uri, batch = :batch, count = :count, size = :size, mark = :mark,
        file = :file, begins = CAST(:begins AS json)
    WHERE id = :feed AND token = :token
    RETURNING id
""")

WRITTEN = text("""
    DELETE FROM feed_items WHERE feed_id = :feed AND journal_id = ANY (CAST(:ids AS bigint[]))
""")

WRITTEN_WHOLE = text("""
    UPDATE feed_items SET is_written = true
    WHERE feed_id = :feed AND journal_id = ANY (CAST(:ids AS bigint[]))
""")

UNWRITTEN = text("""
    SELECT i.journal_id, i.is_written, j.item_class, j.fields
    FROM feed_items i JOIN journal j ON j.id = i.journal_id
    WHERE i.feed_id = :feed AND NOT i.is_written AND i.journal_id > :after
    ORDER BY i.journal_id LIMIT :limit
""")

ALL = text("""
    SELECT i.journal_id, i.is_written, j.item_class, j.fields
    FROM feed_items i JOIN journal j ON j.id = i.journal_id
    WHERE i.feed_id = :feed AND i.journal_id > :after
    ORDER BY i.journal_id LIMIT :limit
""")

COUNT = text("""
    SELECT count(*) FROM (
        SELECT FROM feed_items WHERE feed_id = :feed AND NOT is_written LIMIT :most) AS found
""")

# Free for whoever asks, while nobody holds it in a transaction that goes on.
PROBE = text("SELECT pg_try_advisory_xact_lock(CAST('feeds'::regclass::oid AS int), :feed)")

HAS_FRESH = text("""
    SELECT EXISTS (SELECT FROM tasks t JOIN results r ON r.task_id = t.id
        WHERE t.crawl_id = :crawl AND r.is_successful AND r.invalidated_at IS NULL
            AND r.task_version = t.version
            AND (NOT t.is_callback OR :all OR t.name = ANY (CAST(:callbacks AS text[])))
            AND (r.expires_at IS NULL OR r.expires_at > clock_timestamp()))
""")

# What is in feeds that no longer take part; what they lack stays marked.
FORGET_OTHERS = text("""
    DELETE FROM feed_items i USING feeds f, crawls c
    WHERE c.id = :crawl AND f.crawl_id = c.id AND i.feed_id = f.id AND i.is_written
        AND f.run IS DISTINCT FROM c.run
        AND NOT EXISTS (SELECT FROM feed_items u WHERE u.feed_id = f.id AND NOT u.is_written)
""")


def register(connection: Connection, crawl_id: int, names: Sequence[str]) -> list[FeedState]:
    """Let feeds take part in the crawl's run; the caller's transaction owns the crawl.

    One that is done with the run before begins anew; one that is not goes on where it was.
    """
    states = [_register(connection, crawl_id, name) for name in names]
    connection.execute(FORGET_OTHERS, {"crawl": crawl_id})
    return states


def _register(connection: Connection, crawl_id: int, name: str) -> FeedState:
    here = {"crawl": crawl_id, "name": name}
    connection.execute(MAKE, here)
    row = connection.execute(FIND, here).one()
    is_new = not row.takes_part and not row.is_unfinished
    if is_new:
        connection.execute(FORGET_ITEMS, {"feed": row.id})
        connection.execute(BEGIN_ANEW, {"feed": row.id})
    if not row.takes_part:
        connection.execute(MARK_RUN, {"crawl": crawl_id, "feed": row.id})
        connection.execute(TAKE_PART, {"feed": row.id, "run": row.run})
    return FeedState(id=row.id, is_new=is_new)


def take(connection: Connection, feed_id: int) -> FeedState | None:
    """Become the one that writes a feed; return how far it has come, None if it is gone.

    What another one does from now on that believes it is the writer changes nothing.
    """
    token = uuid.uuid4()
    row = connection.execute(TAKE, {"feed": feed_id, "token": token}).first()
    if row is None:
        return None
    known = row._asdict() | {"begins": row.begins or {}}
    return FeedState(id=feed_id, token=token, **known)


def fence(connection: Connection, feed_ids: Sequence[int]) -> None:
    """Have whoever writes these feeds look first how far they have come, see `take`."""
    connection.execute(FENCE, {"feeds": list(feed_ids)})


def advance(
    connection: Connection, state: FeedState, written: Sequence[int], *, whole: bool
) -> bool:
    """Note how far a feed has come, and what is written; False if another one writes it now.

    Of a feed that is written `whole` it stays known what is in it.
    """
    given = {"feed": state.id, "token": state.token, "uri": state.uri, "batch": state.batch}
    given |= {"count": state.count, "size": state.size, "mark": state.mark}
    given |= {"file": state.file, "begins": json.dumps(dict(state.begins))}
    if connection.execute(ADVANCE, given).first() is None:
        return False
    if written:
        statement = WRITTEN_WHOLE if whole else WRITTEN
        connection.execute(statement, {"feed": state.id, "ids": list(written)})
    return True


def read(
    connection: Connection, feed_id: int, *, after_id: int, limit: int, with_written: bool
) -> list[FeedItem]:
    """Return what is not written yet, and with `with_written` what is, by number."""
    statement = ALL if with_written else UNWRITTEN
    given = {"feed": feed_id, "after": after_id, "limit": limit}
    return typed(connection.execute(statement, given), FeedItem)


def mark_run(connection: Connection, crawl_id: int, feed_id: int) -> None:
    """Mark all of the run as not written; the caller's transaction owns the crawl."""
    connection.execute(MARK_RUN, {"crawl": crawl_id, "feed": feed_id})


def count(connection: Connection, feed_id: int, most: int) -> int:
    """Count what is not written yet, up to `most`."""
    return int(connection.execute(COUNT, {"feed": feed_id, "most": most}).scalar_one())


def is_free(connection: Connection, feed_id: int) -> bool:
    """Tell whether nobody writes a feed, as of this moment."""
    return bool(connection.execute(PROBE, {"feed": feed_id}).scalar_one())


def has_fresh(connection: Connection, crawl_id: int, *, callbacks: Collection[str] | None) -> bool:
    """Tell whether the crawl has results that a new run does not make again.

    Of plain callbacks these are the ones whose results are kept; None: all.
    """
    given = {"crawl": crawl_id, "all": callbacks is None, "callbacks": list(callbacks or ())}
    return bool(connection.execute(HAS_FRESH, given).scalar_one())
