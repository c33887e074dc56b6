"""Moves: where redirects and retries take the request of a claim, noted before it goes on.

All functions take a connection and never commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph import values
from scrapy_itemgraph.types import Moved

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from scrapy_itemgraph.types import Move

# Claims that are still ours, with their items; both stay until the transaction ends. A merge of
# the item waits for us and takes the name along, or we for the merge and find the item gone.
LOCK_CLAIMS = text("""
    SELECT w.item_id, w.task_id
    FROM unnest(CAST(:items AS bigint[]), CAST(:tasks AS int[]), CAST(:tokens AS uuid[]))
        AS moved(item_id, task_id, token)
    JOIN work w ON w.item_id = moved.item_id AND w.task_id = moved.task_id
    JOIN items i ON i.id = w.item_id
    WHERE w.token = moved.token
    FOR NO KEY UPDATE OF w, i
""")

# Sorted by key, as everywhere.
TAKE_NAMES = text("""
    INSERT INTO aliases (crawl_id, key, name, item_id)
    SELECT :crawl, key, name, item_id
    FROM unnest(CAST(:keys AS uuid[]), CAST(:names AS text[]), CAST(:items AS bigint[]))
        AS new(key, name, item_id)
    ORDER BY key
    ON CONFLICT DO NOTHING
""")

OWNERS = text("""
    SELECT a.name, a.item_id FROM unnest(CAST(:keys AS uuid[])) AS wanted(key)
    JOIN aliases a ON a.crawl_id = :crawl AND a.key = wanted.key
""")

STORE = text("""
    UPDATE work w SET request = CAST(moved.request AS json)
    FROM unnest(CAST(:items AS bigint[]), CAST(:tasks AS int[]), CAST(:tokens AS uuid[]),
        CAST(:requests AS text[])) AS moved(item_id, task_id, token, request)
    WHERE w.item_id = moved.item_id AND w.task_id = moved.task_id AND w.token = moved.token
""")


def move(connection: Connection, crawl_id: int, moves: Sequence[Move]) -> list[Moved]:
    """Note where claims' requests went; return for each whether it may go on there.

    The name of where it goes becomes an alias of the claim's item; if it is another item's, the
    request is a duplicate, and nothing changes.
    """
    ours = {
        (row.item_id, row.task_id)
        for row in connection.execute(
            LOCK_CLAIMS,
            {
                "items": [one.claim.item_id for one in moves],
                "tasks": [one.claim.task_id for one in moves],
                "tokens": [one.claim.token for one in moves],
            },
        )
    }
    owners = _take(connection, crawl_id, [one for one in moves if _pair(one) in ours])
    answers = [_answer(one, ours, owners) for one in moves]
    stored = [
        one
        for one, answer in zip(moves, answers, strict=True)
        if answer is Moved.ON and one.request is not None
    ]
    if stored:
        connection.execute(
            STORE,
            {
                "items": [one.claim.item_id for one in stored],
                "tasks": [one.claim.task_id for one in stored],
                "tokens": [one.claim.token for one in stored],
                "requests": [one.request for one in stored],
            },
        )
    return answers


def _pair(one: Move) -> tuple[int, int]:
    return one.claim.item_id, one.claim.task_id


def _answer(one: Move, ours: set[tuple[int, int]], owners: dict[str, int | None]) -> Moved:
    if _pair(one) not in ours:
        return Moved.LOST
    if one.name is not None and owners.get(one.name) != one.claim.item_id:
        return Moved.TAKEN
    return Moved.ON


def _take(connection: Connection, crawl_id: int, moves: Sequence[Move]) -> dict[str, int | None]:
    """Take names for the moves' items; return who has each of them now."""
    wanted: dict[str, int] = {}
    for one in moves:
        if one.name is not None:
            wanted.setdefault(one.name, one.claim.item_id)
    if not wanted:
        return {}
    keys = [values.name_key(name) for name in wanted]
    connection.execute(
        TAKE_NAMES,
        {"crawl": crawl_id, "keys": keys, "names": list(wanted), "items": list(wanted.values())},
    )
    rows = connection.execute(OWNERS, {"crawl": crawl_id, "keys": keys})
    return {row.name: row.item_id for row in rows}
