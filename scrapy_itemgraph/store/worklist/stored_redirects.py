"""Moves: where redirects and retries take the request of a claim, noted before it goes on.

All functions take a connection and never commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from scrapy_itemgraph.model import values
from scrapy_itemgraph.model.types import RedirectAnswer
from scrapy_itemgraph.store.items import lock_items

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Row

    from scrapy_itemgraph.model.types import Redirect

# Claims that are still ours; they stay so until the transaction ends.
LOCK_CLAIMS = text("""
    SELECT w.item_id, w.task_id
    FROM unnest(CAST(:items AS bigint[]), CAST(:tasks AS int[]), CAST(:tokens AS uuid[]))
        AS moved(item_id, task_id, token)
    JOIN work w ON w.item_id = moved.item_id AND w.task_id = moved.task_id
    WHERE w.token = moved.token
    FOR NO KEY UPDATE OF w
""")

DROP_NAMES = text("""
    DELETE FROM aliases a USING unnest(CAST(:keys AS uuid[])) AS gone(key)
    WHERE a.crawl_id = :crawl AND a.key = gone.key
""")

# Sorted by key, as everywhere.
TAKE_NAMES = text("""
    INSERT INTO aliases (crawl_id, key, name, item_id)
    SELECT :crawl, key, name, item_id
    FROM unnest(CAST(:keys AS uuid[]), CAST(:names AS text[]), CAST(:items AS bigint[]))
        AS new(key, name, item_id)
    ORDER BY key
    ON CONFLICT DO NOTHING
    RETURNING key, item_id
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


def move(connection: Connection, crawl_id: int, moves: Sequence[Redirect]) -> list[RedirectAnswer]:
    """Note where claims' requests went; return for each whether it may go on there.

    The name of where it goes becomes an alias of the claim's item, unless it is only looked at; if
    it is another item's, the request is a duplicate, and nothing changes.
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
    owners, gone = _take(connection, crawl_id, [one for one in moves if _pair(one) in ours])
    ours = {pair for pair in ours if pair[0] not in gone}
    answers = [_answer(one, ours, owners) for one in moves]
    stored = [
        one
        for one, answer in zip(moves, answers, strict=True)
        if answer is RedirectAnswer.ON and one.request is not None
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


def _pair(one: Redirect) -> tuple[int, int]:
    return one.claim.item_id, one.claim.task_id


def _answer(
    one: Redirect, ours: set[tuple[int, int]], owners: dict[str, int | None]
) -> RedirectAnswer:
    if _pair(one) not in ours:
        return RedirectAnswer.LOST
    if one.name is not None and owners.get(one.name, one.claim.item_id) != one.claim.item_id:
        return RedirectAnswer.TAKEN
    return RedirectAnswer.ON


def _take(
    connection: Connection, crawl_id: int, moves: Sequence[Redirect]
) -> tuple[dict[str, int | None], set[int]]:
    """Take names for the moves' items; return who has each of them, and which items are gone.

    A merge of an item waits for us and takes the name along, or we for the merge.
    """
    wanted: dict[str, int] = {}
    for one in moves:
        if one.name is not None and one.takes_name:
            wanted.setdefault(one.name, one.claim.item_id)
    taken: Sequence[Row[Any]] = []
    if wanted:
        given = {"names": list(wanted), "items": list(wanted.values())}
        keys = [values.name_key(name) for name in wanted]
        taken = connection.execute(TAKE_NAMES, {"crawl": crawl_id, "keys": keys, **given}).all()
    items = {one.claim.item_id for one in moves}
    gone = items - set(lock_items(connection, sorted(items)))
    orphaned = [row.key for row in taken if row.item_id in gone]
    if orphaned:
        connection.execute(DROP_NAMES, {"crawl": crawl_id, "keys": orphaned})
    keys = [values.name_key(one.name) for one in moves if one.name is not None]
    rows = connection.execute(OWNERS, {"crawl": crawl_id, "keys": keys}).all() if keys else []
    return {row.name: row.item_id for row in rows}, gone
