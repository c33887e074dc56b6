"""Items as people name them: by a name, or by the URL of a page; and what is written alike.

Each statement reads a few rows by an index, however many items there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.model import item_names, page_names
from scrapy_itemgraph.store.columns import typed
from scrapy_itemgraph.store.failures import PAGE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection

_MOST_OF_URL = 1000  # of a page that is fetched again and again each may be an item
_MOST_NEAR = 3
_NEWEST = 2_000  # items whose names may go on as what was given

_PAGE = f"""i.id, c.name AS crawl, i.name AS item, {PAGE},
        (SELECT substr(g.tag_name, 10) FROM tags g
            WHERE g.item_id = i.id AND starts_with(g.tag_name, 'callback:') LIMIT 1) AS callback"""  # noqa: S608 - our own columns

# Items that have one of the names, in one crawl or in all. LATERAL with LIMIT keeps the planner,
# which may not know a new crawl, from going through all names of the crawl.
NAMED = text(f"""
    SELECT DISTINCT ON (c.name, i.id) {_PAGE}
    FROM crawls c
    CROSS JOIN unnest(CAST(:keys AS uuid[])) AS wanted(key)
    CROSS JOIN LATERAL (
        SELECT a.item_id FROM aliases a
        WHERE a.crawl_id = c.id AND a.key = wanted.key AND a.name = ANY (CAST(:names AS text[]))
        LIMIT 1) AS a
    JOIN items i ON i.id = a.item_id
    WHERE (CAST(:crawl AS int) IS NULL OR c.id = :crawl)
    ORDER BY c.name, i.id LIMIT :limit
""")  # noqa: S608 - our own columns

# Items whose data names one of the URLs, in one crawl or in all; `+ 0` is for the same reason.
OF_URLS = text(f"""
    SELECT {_PAGE}
    FROM unnest(CAST(:urls AS text[])) AS wanted(url)
    CROSS JOIN LATERAL (
        SELECT i.* FROM items i
        WHERE i.url_key = hashtext(CAST(to_json(wanted.url) AS text))
            AND (CAST(:crawl AS int) IS NULL OR i.crawl_id + 0 = :crawl)
            AND json_typeof(i.data->'url') = 'string' AND i.data->>'url' = wanted.url
        LIMIT :limit) AS i
    JOIN crawls c ON c.id = i.crawl_id
    ORDER BY i.id
""")  # noqa: S608 - our own columns

# Of the newest items those whose name or URL begins so.
LONGER = text(f"""
    SELECT {_PAGE}
    FROM (SELECT i.* FROM items i WHERE i.crawl_id = :crawl
        ORDER BY i.crawl_id DESC, i.id DESC LIMIT :newest) AS i
    JOIN crawls c ON c.id = i.crawl_id
    WHERE starts_with(i.name, :given) OR (json_typeof(i.data->'url') = 'string'
        AND starts_with(i.data->>'url', :given))
    ORDER BY length(i.name), i.id LIMIT :limit
""")  # noqa: S608 - our own columns


class FoundPage(NamedTuple):
    """An item and its crawl; `url`, `method` and `callback` are those of a request."""

    id: int
    crawl: str
    item: str
    url: str | None
    method: str | None
    callback: str | None

    @property
    def shown(self) -> str:
        """What a person reads for it: its name, or for a page its URL."""
        return item_names.label_of(self.item, self.url, self.method)

    @property
    def apart(self) -> str:
        """The same with the callback of a page."""
        return page_names.shown(self.item, self.url, self.method, self.callback)


def find(connection: Connection, crawl_id: int | None, given: str) -> list[FoundPage]:
    """Return the items that are meant: of a name, else those of a URL; None: of all crawls.

    There is one at most for each crawl, unless several pages of the URL are meant alike.
    """
    if not _is_storable(given):
        return []
    found = _named(connection, crawl_id, [given])
    if found:
        return found
    page = page_names.asked(given)
    if page is None:
        return []
    plain = page_names.plain_name(page.url) if page.fits("GET", page.callback) else None
    is_plain = _named(connection, crawl_id, [plain]) if plain is not None else []
    is_plain = [one for one in is_plain if page.fits(one.method, one.callback)]
    if is_plain and crawl_id is not None:
        return is_plain
    at_url = _of_urls(connection, crawl_id, page_names.stored_urls(page.url))
    known = {one.crawl for one in is_plain}
    others = [one for one in at_url if one.crawl not in known]
    return is_plain + _narrowed(others, page)


def _narrowed(found: Sequence[FoundPage], page: page_names.AskedPage) -> list[FoundPage]:
    """Return which pages of a URL are meant: without a method those of GET, if there are any."""
    fitting = [one for one in found if page.fits(one.method, one.callback)]
    if page.method is None:
        fitting = [one for one in fitting if one.method in {None, "GET"}] or fitting
    return fitting


def near(connection: Connection, crawl_id: int, given: str) -> list[str]:
    """Return up to three names or URLs of items that are written much like one that is none."""
    if not _is_storable(given):
        return []
    variants = page_names.near(given)
    names = [one for url in variants for one in (url, page_names.plain_name(url)) if one]
    found = _named(connection, crawl_id, names) if names else []
    found += _of_urls(connection, crawl_id, variants) if variants else []
    wanted = {"crawl": crawl_id, "given": given, "newest": _NEWEST, "limit": _MOST_NEAR}
    if len(found) < _MOST_NEAR:
        found += typed(connection.execute(LONGER, wanted), FoundPage)
    return list(dict.fromkeys(one.shown for one in found))[:_MOST_NEAR]


def _is_storable(given: str) -> bool:
    try:
        given.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in given


def _named(connection: Connection, crawl_id: int | None, names: Iterable[str]) -> list[FoundPage]:
    listed = list(names)
    given = {
        "crawl": crawl_id,
        "keys": [item_names.name_key(one) for one in listed],
        "names": listed,
        "limit": _MOST_OF_URL,
    }
    return typed(connection.execute(NAMED, given), FoundPage)


def _of_urls(connection: Connection, crawl_id: int | None, urls: list[str]) -> list[FoundPage]:
    given = {"crawl": crawl_id, "urls": urls, "limit": _MOST_OF_URL}
    return typed(connection.execute(OF_URLS, given), FoundPage)
