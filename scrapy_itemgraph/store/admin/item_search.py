"""Search: items by a part of a name or URL, or by a path into their data."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store.columns import typed
from scrapy_itemgraph.store.failures import PAGE

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

MOST_LOOKED_AT = 100_000  # the newest items of a crawl
_SECONDS = 10
_TIMED_OUT = "57014"


class SearchKind(StrEnum):
    """What a search looks for: names that begin with a text, or have it; data with a JSON path."""

    PREFIX = "prefix"
    PART = "part"
    PATH = "path"


# Every name of an item is an alias, its id too. Looked up by the items that may be found, at once.
_NAMED = """i.id IN (
            SELECT a.item_id FROM aliases a
            WHERE a.crawl_id = :crawl AND a.item_id >= :first AND {condition})"""
_CONDITIONS = {
    SearchKind.PREFIX: _NAMED.format(condition="starts_with(a.name, :text)"),
    # What JSON writes without a backslash is in it as it is, and is looked for before it is parsed.
    SearchKind.PART: rf"""{_NAMED.format(condition="strpos(a.name, :text) > 0")}
        OR CASE WHEN strpos(CAST(i.data AS text), :text) = 0
                AND strpos(CAST(i.data AS text), chr(92)) = 0 THEN false
            ELSE strpos(CASE WHEN json_typeof(i.data->'url') = 'string' THEN i.data->>'url'
                ELSE '' END, :text) > 0 END""",
    # JSON that has a NUL is no jsonb.
    SearchKind.PATH: r"""CASE WHEN strpos(CAST(i.data AS text), '\u0000') > 0 THEN false
        ELSE jsonb_path_exists(CAST(i.data AS jsonb), CAST(:text AS jsonpath), '{}', true) END""",
}
SEARCHES = {
    kind: text(f"""
    SELECT i.name AS item, {PAGE}, i.created_at FROM items i
    WHERE i.crawl_id = :crawl AND i.id >= :first AND ({condition})
    ORDER BY i.crawl_id DESC, i.id DESC LIMIT :limit
""")  # noqa: S608 - our own conditions
    for kind, condition in _CONDITIONS.items()
}

# The newest item that is not looked at; none where all are.
FIRST = text("""
    SELECT i.id FROM items i WHERE i.crawl_id = :crawl
    ORDER BY i.crawl_id DESC, i.id DESC OFFSET :most LIMIT 1
""")

SHORTLY = text("SELECT set_config('statement_timeout', :milliseconds, true)")


class FoundItem(NamedTuple):
    """An item that was found; `url` and `method` are those of a request."""

    item: str
    url: str | None
    method: str | None
    created_at: datetime


class Found(NamedTuple):
    """What a search found, the newest first; `is_whole`: all items of the crawl were looked at."""

    items: list[FoundItem]
    is_whole: bool


def search(connection: Connection, crawl_id: int, wanted: str, *, kind: str, limit: int) -> Found:
    """Return items among the newest 100,000 that have a name, a URL or data like this.

    Raises:
        OperationError: there is no such kind, the path is none, or it takes too long.

    """
    if kind not in set(SearchKind):
        raise OperationError(f"there is no search by {kind!r}; there are {', '.join(SearchKind)}")
    if "\0" in wanted:
        return Found([], is_whole=True)
    engine.hot_path(connection)
    before = connection.execute(FIRST, {"crawl": crawl_id, "most": MOST_LOOKED_AT}).scalar()
    given: dict[str, Any] = {"crawl": crawl_id, "first": 0 if before is None else before + 1}
    connection.execute(SHORTLY, {"milliseconds": str(_SECONDS * 1000)})
    try:
        rows = connection.execute(
            SEARCHES[SearchKind(kind)], {**given, "text": wanted, "limit": limit}
        )
        found = typed(rows, FoundItem)
    except DBAPIError as error:
        state = getattr(error.orig, "sqlstate", None)
        if state == _TIMED_OUT:
            what = f"the search took more than {_SECONDS} seconds; look for something simpler"
        elif kind == SearchKind.PATH and str(state).startswith(("22", "42")):
            why = str(error.orig).splitlines()[0]
            what = f"this is no JSON path: {why}; one is $.price ? (@ > 10)"
        else:
            raise
        raise OperationError(what) from None
    return Found(found, is_whole=before is None)
