"""Items a page at a time: of a tag, with a task in a state, made or done since a moment.

An index has a crawl's items, those of a tag, and pairs that are held, gone or set aside. All else
is found by looking at items one by one: at so many a page, which then says where to go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import TextClause, text

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.model import item_names
from scrapy_itemgraph.model.snapshots import ListedItem, PairState
from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store import items as stored_items
from scrapy_itemgraph.store.admin.status import STATE
from scrapy_itemgraph.store.sql_conditions import IS_GONE, IS_HELD

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Connection

MOST_LOOKED_AT = 20_000  # items of a page, where a state or a moment is asked for
_NEWEST = 2**63 - 1  # a number behind all items


class Wanted(NamedTuple):
    """Which items are asked for: those of a tag, with a task in a state, changed since a moment.

    With `task`, a task's number, those whose tags call for it, and `state` is that of this task.
    An item counts as changed when it was made or changed, or a task of it completed.
    """

    tag: str | None = None
    state: str | None = None
    since: datetime | None = None
    task: int | None = None


class ItemPage(NamedTuple):
    """Some items, and the number that the next page is `after`; None where there is no more.

    `is_full` says that there are as many as were asked for. Where it is false and `after` is a
    number, the page ends because enough items were looked at.
    """

    rows: list[ListedItem]
    after: int | None
    is_full: bool


_HELD = """
        SELECT r.item_id AS id FROM tasks t CROSS JOIN LATERAL (
            SELECT r.item_id FROM results r
            WHERE r.task_id = t.id AND {held} AND r.item_id {{sign}} :after
            ORDER BY r.task_id {{way}}, r.item_id {{way}} LIMIT :most) AS r
        WHERE t.crawl_id = :crawl AND (CAST(:task AS int) IS NULL OR t.id = :task)
        GROUP BY r.item_id ORDER BY r.item_id {{way}}"""

_SOURCES = {
    "all": """
        SELECT i.id FROM items i WHERE i.crawl_id = :crawl AND i.id {sign} :after
        ORDER BY i.crawl_id {way}, i.id {way}""",
    "tagged": """
        SELECT g.item_id AS id FROM tags g
        WHERE g.crawl_id = :crawl AND g.tag_name = :tag AND g.item_id {sign} :after
        ORDER BY g.crawl_id {way}, g.tag_name {way}, g.item_id {way}""",
    "held": _HELD.format(held=IS_HELD),
    "gone": _HELD.format(held=IS_GONE),
    "skipped": _HELD.format(held="r.hold = 'skipped'"),
    "stashed": _HELD.format(held="r.hold = 'stashed'"),
    "left": _HELD.format(held="r.hold = 'left'"),
}

# Scalars, and no EXISTS: PostgreSQL would hash the whole table for one of those behind an OR.
_HAS_TAG = """(CAST(:tag AS text) IS NULL OR (
            SELECT true FROM tags g WHERE g.item_id = l.id AND g.tag_name = :tag) IS TRUE)"""
_IS_SINCE = """(CAST(:since AS timestamptz) IS NULL
            OR (SELECT i.updated_at >= :since FROM items i WHERE i.id = l.id) IS TRUE
            OR (SELECT true FROM results r
                WHERE r.item_id = l.id AND r.completed_at >= :since LIMIT 1) IS TRUE)"""
_CALLS_FOR_TASK = """(CAST(:task AS int) IS NULL OR (
            SELECT true FROM tags g
            JOIN task_tags tt ON tt.crawl_id = g.crawl_id AND tt.tag_name = g.tag_name
            WHERE g.item_id = l.id AND tt.task_id = :task LIMIT 1) IS TRUE)"""
_IS_THAT_TASK = "(CAST(:task AS int) IS NULL OR t.id = :task)"
_IS_IN_STATE = f"""(CAST(:state AS text) IS NULL
            OR (SELECT true FROM results r JOIN tasks t ON t.id = r.task_id
                WHERE r.item_id = l.id AND {STATE} = :state AND {_IS_THAT_TASK} LIMIT 1) IS TRUE
            OR (:state = 'never run' AND (
                SELECT true FROM tags g
                JOIN task_tags tt ON tt.crawl_id = g.crawl_id AND tt.tag_name = g.tag_name
                JOIN tasks t ON t.id = tt.task_id AND t.is_registered
                WHERE g.item_id = l.id AND {_IS_THAT_TASK} AND (SELECT true FROM results r
                    WHERE r.item_id = g.item_id AND r.task_id = tt.task_id) IS NULL
                LIMIT 1) IS TRUE))"""  # noqa: S608 - our own conditions


def _page(source: str, sign: str, way: str) -> TextClause:
    """Return the statement for the numbers of a page; `last` is null where all was looked at."""
    looked_at = _SOURCES[source].format(sign=sign, way=way)
    return text(f"""
    SELECT ARRAY(
        SELECT l.id FROM ({looked_at} LIMIT :most) AS l
        WHERE {_HAS_TAG} AND {_CALLS_FOR_TASK} AND {_IS_SINCE} AND {_IS_IN_STATE}
        ORDER BY l.id {way} LIMIT :limit) AS found,
        ({looked_at} OFFSET :most - 1 LIMIT 1) AS last
    """)  # noqa: S608 - our own parts


PAGES = {source: _page(source, ">", "ASC") for source in _SOURCES}
NEWEST_FIRST = {source: _page(source, "<", "DESC") for source in _SOURCES}

ONLY_TAG = text("""
    SELECT min(tt.tag_name) FROM task_tags tt WHERE tt.task_id = :task HAVING count(*) = 1
""")

# Every task that calls for one of some items, or has a result of it, with what that is.
PAIRS = text(f"""
    SELECT wanted.id AS item_id, t.name AS task, {STATE} AS state, r.metadata, r.completed_at
    FROM unnest(CAST(:items AS bigint[])) AS wanted(id)
    CROSS JOIN LATERAL (
        SELECT r.task_id FROM results r WHERE r.item_id = wanted.id
        UNION
        SELECT tt.task_id FROM tags g
        JOIN task_tags tt ON tt.crawl_id = g.crawl_id AND tt.tag_name = g.tag_name
        WHERE g.item_id = wanted.id) AS pair
    JOIN tasks t ON t.id = pair.task_id
    LEFT JOIN results r ON r.item_id = wanted.id AND r.task_id = t.id
    WHERE t.is_registered OR r.item_id IS NOT NULL
    ORDER BY wanted.id, t.name
""")  # noqa: S608 - our own columns


def page(
    connection: Connection,
    crawl_id: int,
    wanted: Wanted,
    *,
    after: int | None = None,
    limit: int,
    newest_first: bool = False,
) -> ItemPage:
    """Return a page of items in the order in which they were made, or the newest first.

    Raises:
        OperationError: there is no such state.

    """
    if wanted.state is not None and wanted.state not in set(PairState):
        known = ", ".join(PairState)
        raise OperationError(f"there is no state {wanted.state!r}; the states are {known}")
    engine.hot_path(connection)
    wanted, is_listed = _by_tag(connection, wanted)
    is_looked_at = wanted.state is not None or wanted.since is not None or not is_listed
    given = {
        "crawl": crawl_id,
        "after": (_NEWEST if newest_first else 0) if after is None else after,
        "most": max(limit, MOST_LOOKED_AT) if is_looked_at else limit,
        "limit": limit,
        **wanted._asdict(),
    }
    statement = (NEWEST_FIRST if newest_first else PAGES)[_source(wanted)]
    found, last = connection.execute(statement, given).one()
    is_full = len(found) == limit
    rows = _listed(connection, found)
    return ItemPage(rows, found[-1] if is_full else last, is_full)


def _by_tag(connection: Connection, wanted: Wanted) -> tuple[Wanted, bool]:
    """Return what is asked for, by the only tag that calls for its task, where there is one.

    And whether an index lists the items of that task, or none is asked for.
    """
    if wanted.task is None:
        return wanted, True
    tag = connection.execute(ONLY_TAG, {"task": wanted.task}).scalar()
    if tag is None or wanted.tag not in {None, tag}:
        return wanted, False
    return wanted._replace(tag=tag), True


def _source(wanted: Wanted) -> str:
    if wanted.state is not None and wanted.state in _SOURCES:
        return wanted.state
    return "all" if wanted.tag is None else "tagged"


def _listed(connection: Connection, numbers: Sequence[int]) -> list[ListedItem]:
    """Return items in the order of their numbers given; what is gone by now is left out."""
    found = stored_items.snapshots(connection, numbers)
    pairs: dict[int, list[Any]] = {number: [] for number in numbers}
    for row in connection.execute(PAIRS, {"items": list(numbers)}) if numbers else ():
        pairs[row.item_id].append(row)
    return [_item(found[number], pairs[number]) for number in numbers if number in found]


def _item(item: Any, pairs: Sequence[Any]) -> ListedItem:
    completed = [row.completed_at for row in pairs if row.completed_at is not None]
    url, method = item_names.page_of(item.data)
    return ListedItem(
        **{name: getattr(item, name) for name in item.__dataclass_fields__},
        url=url,
        method=method,
        states={row.task: row.state for row in pairs},
        metadata={row.task: row.metadata for row in pairs if row.completed_at is not None},
        completed_at=max(completed, default=None),
    )
