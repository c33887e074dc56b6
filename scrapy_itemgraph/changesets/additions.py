"""Items that are added in bulk: what `apply` does with operations that do nothing but create items.

Nothing is looked up first, no draft is made that could be dropped: names are taken, and what others
have is known. It means the same as `apply`, which a property test holds.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from scrapy_itemgraph.changesets import batch_names, flush
from scrapy_itemgraph.changesets.apply import alike
from scrapy_itemgraph.changesets.state import New, State, slot_of
from scrapy_itemgraph.model import item_names
from scrapy_itemgraph.model.operations import CreateItem
from scrapy_itemgraph.model.work import Note
from scrapy_itemgraph.postgres.arrays import number_array, text_array
from scrapy_itemgraph.postgres.engine import WIDE
from scrapy_itemgraph.store import items as stored_items
from scrapy_itemgraph.store.worklist import refresh

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from scrapy_itemgraph.model.operations import Operation


def of(operations: Iterable[Operation]) -> list[CreateItem] | None:
    """Return checked operations if they do no more than create items, each with one name."""
    creations: list[CreateItem] = []
    for one in operations:
        if type(one) is not CreateItem or one.aliases or one.fail_if_exists or one.merge_tags:
            return None
        creations.append(one)
    return creations


def add(
    connection: Connection, creations: Sequence[CreateItem], *, crawl_id: int, now: datetime
) -> list[Note]:
    """Create the items whose names are free, in their order; return a note of each."""
    first: dict[str, CreateItem] = {}
    for one in creations:
        first.setdefault(one.id, one)
    numbers = connection.execute(batch_names.NEXT_IDS, {"count": len(first)}).scalars()
    candidates = dict(zip(first, numbers, strict=True))
    known = _take(connection, crawl_id, candidates)
    state = State(crawl_id=crawl_id, now=now, tasks={})
    notes: list[Note] = []
    for one in creations:
        label = "known"
        if first.get(one.id) is one and one.id not in known:
            label = "new"
            start = one.not_before
            not_before = now + start if isinstance(start, timedelta) else start
            state.new[candidates[one.id]] = New(
                one, (one.id,), one.created_by, not_before, slot_of(one)
            )
        shown = item_names.label(one.id, one.data)
        notes.append(Note(one.verb, label, one.id, shown))
    flush.write_new(connection, state, flush.slot_numbers(connection, state))
    refresh.refresh(connection, (), new=alike(connection, state.new))
    return notes


def _take(connection: Connection, crawl_id: int, candidates: dict[str, int]) -> set[str]:
    """Take names, each for its number, sorted by key; return those that others have."""
    keys = {name: key for key, name in sorted((item_names.hex_key(one), one) for one in candidates)}
    names = list(keys)
    lost: set[str] = set()
    for at in range(0, len(names), WIDE):
        part = names[at : at + WIDE]
        given = {
            "crawl": crawl_id,
            "keys": text_array([keys[name] for name in part]),
            "names": text_array(part),
            "items": number_array([candidates[name] for name in part]),
        }
        lost.update(connection.execute(stored_items.TAKE_NAMES, given).scalars())
    if lost:
        batch_names.resolve(connection, crawl_id, keys, list(lost))  # raises for two of one key
    return lost
