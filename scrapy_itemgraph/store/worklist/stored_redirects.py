"""Where redirects and retries take the request of a claim, noted before it goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.model import item_names
from scrapy_itemgraph.model.work import RedirectAnswer
from scrapy_itemgraph.store.columns import columns
from scrapy_itemgraph.store.items import DROP_NAMES, TAKE_NAMES, lock_items

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from scrapy_itemgraph.model.work import Pair, Redirect

# Claims that are still ours; they stay so until the transaction ends.
LOCK_CLAIMS = text("""
    SELECT w.item_id, w.task_id
    FROM unnest(CAST(:items AS bigint[]), CAST(:tasks AS int[]), CAST(:tokens AS uuid[]))
        AS moved(item_id, task_id, token)
    JOIN work w ON w.item_id = moved.item_id AND w.task_id = moved.task_id
    WHERE w.token = moved.token
    FOR NO KEY UPDATE OF w
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

_CLAIM = {"items": "claim.item_id", "tasks": "claim.task_id", "tokens": "claim.token"}


def redirect(
    connection: Connection, crawl_id: int, moves: Sequence[Redirect]
) -> list[RedirectAnswer]:
    """Note where claims' requests went; return for each whether it may go on there.

    The name of where it goes becomes an alias of the claim's item, unless it is only looked at; if
    it is another item's, the request is a duplicate, and nothing changes.
    """
    given = columns(moves, **_CLAIM)
    ours = {(row.item_id, row.task_id) for row in connection.execute(LOCK_CLAIMS, given)}
    owners, gone = _take(connection, crawl_id, [one for one in moves if _pair(one) in ours])
    ours = {pair for pair in ours if pair[0] not in gone}
    answers = [_answer(one, ours, owners) for one in moves]
    stored = [
        one
        for one, answer in zip(moves, answers, strict=True)
        if answer is RedirectAnswer.ON and one.request is not None
    ]
    if stored:
        connection.execute(STORE, columns(stored, **_CLAIM, requests="request"))
    return answers


def _pair(one: Redirect) -> Pair:
    return one.claim.item_id, one.claim.task_id


def _answer(one: Redirect, ours: set[Pair], owners: dict[str, int | None]) -> RedirectAnswer:
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
    if wanted:
        names = sorted((item_names.name_key(name), name, item) for name, item in wanted.items())
        given = columns(names, keys=0, names=1, items=2)
        for lost in connection.execute(TAKE_NAMES, {"crawl": crawl_id, **given}).scalars():
            del wanted[lost]
    concerned = {one.claim.item_id for one in moves}
    gone = concerned - set(lock_items(connection, concerned))
    orphaned = [item_names.name_key(name) for name, item_id in wanted.items() if item_id in gone]
    if orphaned:
        connection.execute(DROP_NAMES, {"crawl": crawl_id, "keys": orphaned})
    asked = [item_names.name_key(one.name) for one in moves if one.name is not None]
    rows = connection.execute(OWNERS, {"crawl": crawl_id, "keys": asked}).all() if asked else []
    return {row.name: row.item_id for row in rows}, gone
