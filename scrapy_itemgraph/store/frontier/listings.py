"""What a frontier has, in lists: crawls, queues, URLs, servers. All come in an order that stays.

URLs are found by an index, in the order of their slots and items; parts of a long list are read in
transactions of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.model import frontier
from scrapy_itemgraph.model.frontier import KnownURL
from scrapy_itemgraph.store import items
from scrapy_itemgraph.store.frontier import lookup
from scrapy_itemgraph.store.frontier.handouts import url_of
from scrapy_itemgraph.store.frontier.lookup import IS_WITHIN, Cursor
from scrapy_itemgraph.store.sql_conditions import IS_DEAD, IS_READABLE, IS_READY_BESIDE_OTHERS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

    from scrapy_itemgraph.store.frontier.lookup import Scope

PAGE = 1000  # URLs that are read in a transaction
COUNTED = 10_000  # and that are compared with a filter
PASSED_OVER = 100_000  # and that are counted by the index alone

# Whether a queue `f` has something to fetch, now or later, by its task `fetch`.
HAS_WORK = f"""(EXISTS (
            SELECT FROM kinds k CROSS JOIN LATERAL (
                SELECT FROM work w
                WHERE w.queue_id = f.queue_id AND w.kind_id = k.id AND {IS_READY_BESIDE_OTHERS}
                LIMIT 1) AS ready
            WHERE k.task_id = :task OFFSET 0)
        OR EXISTS (
            SELECT FROM work w
            WHERE w.queue_id = f.queue_id AND w.not_before IS NOT NULL AND w.tries > 0
                AND w.task_id = :task OFFSET 0)
        OR EXISTS (
            SELECT FROM work w
            WHERE w.queue_id = f.queue_id AND w.not_before IS NOT NULL AND w.tries = 0
                AND w.task_id = :task OFFSET 0))"""  # noqa: S608 - our own condition

# Whether it is active: that, and it is not blocked.
IS_ACTIVE = f"""f.blocked_until < (SELECT floor(extract(epoch FROM clock_timestamp())))
        AND {HAS_WORK}"""  # noqa: S608 - our own condition

_QUEUES = """
    SELECT l.name FROM (
        SELECT f.queue_id FROM frontier_queues f
        WHERE f.crawl_id = :crawl AND {which}
        ORDER BY f.crawl_id, f.queue_id OFFSET :start LIMIT :size) AS f
    JOIN queues q ON q.id = f.queue_id
    JOIN limits l ON l.id = q.slot_id
    ORDER BY f.queue_id
"""
QUEUES = text(_QUEUES.format(which="true"))
ACTIVE_QUEUES = text(_QUEUES.format(which=IS_ACTIVE))

_ORDERED = f"""FROM items i
        WHERE i.crawl_id = :crawl AND i.in_frontier AND {IS_WITHIN}
        ORDER BY i.crawl_id, i.slot_id, i.id"""

# The URL of an item `i`; it is in its name if PostgreSQL cannot read the data.
_URL = f"""coalesce(
        CASE WHEN {IS_READABLE} THEN i.data ->> 'url' END,
        substr(i.name, strpos(i.name, ':') + 1))"""
_MATCHES = f"""CASE
            WHEN CAST(:filter AS text) IS NULL THEN true
            WHEN :ignores_case THEN strpos(lower({_URL}), lower(:filter)) > 0
            ELSE strpos({_URL}, :filter) > 0 END"""

# The place of the URL so many further on.
NTH = text(f"""
    SELECT i.slot_id, i.id AS item_id
    {_ORDERED}
    OFFSET :passed LIMIT 1
""")

COUNT = text(f"""
    SELECT count(*) FROM items i
    WHERE i.crawl_id = :crawl AND i.in_frontier AND {IS_WITHIN} AND {_MATCHES}
""")  # noqa: S608 - our own conditions

_KNOWN = """page.id, page.slot_id, l.name AS key, page.name, page.data,
        CAST(floor(extract(epoch FROM page.created_at)) AS bigint) AS created_at,
        done.is_done IS NOT NULL AND waits.does IS NULL AS is_completed"""
_BESIDE = """
    JOIN limits l ON l.id = page.slot_id
    LEFT JOIN LATERAL (
        SELECT true AS is_done FROM results r
        WHERE r.item_id = page.id AND r.task_id = :task AND r.completed_at IS NOT NULL
        OFFSET 0) AS done ON true
    LEFT JOIN LATERAL (
        SELECT true AS does FROM work w WHERE w.item_id = page.id AND w.task_id = :task
        OFFSET 0) AS waits ON true"""

# A part of the URLs; those that do not match come without anything but their place.
URLS = text(f"""
    SELECT page.matches, {_KNOWN}
    FROM (
        SELECT i.id, i.slot_id, matched.is_it AS matches, i.created_at,
            CASE WHEN matched.is_it THEN i.name END AS name,
            CASE WHEN matched.is_it THEN i.data END AS data
        FROM (
            SELECT i.id, i.slot_id, i.name, i.data, i.created_at
            {_ORDERED}
            LIMIT :limit) AS i
        CROSS JOIN LATERAL (SELECT {_MATCHES} AS is_it OFFSET 0) AS matched
        ORDER BY i.slot_id, i.id) AS page
    {_BESIDE}
    ORDER BY page.slot_id, page.id
""")  # noqa: S608 - our own conditions

URL = text(f"""
    SELECT {_KNOWN}
    FROM (SELECT * FROM items i WHERE i.id = :item AND i.in_frontier OFFSET 0) AS page
    {_BESIDE}
""")  # noqa: S608 - our own conditions

NODES = text(f"""
    SELECT n.address FROM frontier_nodes n JOIN processes p ON p.id = n.process_id
    WHERE NOT {IS_DEAD} GROUP BY n.address ORDER BY min(n.process_id)
""")  # noqa: S608 - our own condition


class Filter(NamedTuple):
    """A text that URLs contain. None: all do."""

    text: str | None = None
    ignores_case: bool = False


class Part(NamedTuple):
    """A part of a list of URLs: those that match, and where the next part begins; None: it ends."""

    urls: list[KnownURL]
    next: Cursor | None


def crawls(connection: Connection) -> list[str]:
    """Return the names of the crawls that have a queue."""
    return sorted(lookup.crawls(connection).values())


def queues(
    connection: Connection, crawl: Scope, *, start: int, size: int, include_inactive: bool
) -> list[str]:
    """Return the keys of a crawl's queues, from the one with this number on, counted from 0.

    Inactive ones are blocked, or have no URL that is to be fetched, now or later.
    """
    given = {"crawl": crawl.crawl_id, "start": min(start, frontier.MAX_SECONDS), "size": size}
    if include_inactive:
        return list(connection.execute(QUEUES, given).scalars())
    return list(connection.execute(ACTIVE_QUEUES, {**given, "task": crawl.task_id}).scalars())


def passed(connection: Connection, scope: Scope, after: Cursor, number: int) -> Cursor | None:
    """Return the place so many URLs after another, from 1; None: there are not so many."""
    given = {**scope.span(after), "passed": number - 1}
    found = connection.execute(NTH, given).first()
    return None if found is None else Cursor(*found)


def count(connection: Connection, scope: Scope, after: Cursor, last: Cursor, wanted: Filter) -> int:
    """Count the URLs that match behind a place, up to another."""
    given = {**scope.span(after, last), **_filter(wanted)}
    number: int = connection.execute(COUNT, given).scalar_one()
    return number


def urls(connection: Connection, crawl: str, scope: Scope, after: Cursor, wanted: Filter) -> Part:
    """Return URLs behind a place that match, of the next thousand."""
    given = {**scope.span(after), **_filter(wanted), "task": scope.task_id}
    rows = connection.execute(URLS, {**given, "limit": PAGE}).all()
    found = _known(crawl, (row for row in rows if row.matches))
    return Part(found, Cursor(rows[-1].slot_id, rows[-1].id) if len(rows) == PAGE else None)


def url(connection: Connection, crawl: str, scope: Scope, name: str) -> KnownURL | None:
    """Return the URL of a crawl that has a name; None: the frontier has no such URL."""
    number = items.resolve(connection, scope.crawl_id, name)
    if number is None:
        return None
    rows = connection.execute(URL, {"item": number, "task": scope.task_id})
    return next(iter(_known(crawl, rows)), None)


def nodes(connection: Connection) -> list[str]:
    """Return the addresses of the servers that live."""
    return list(connection.execute(NODES).scalars())


def _filter(wanted: Filter) -> dict[str, Any]:
    return {"filter": wanted.text, "ignores_case": wanted.ignores_case}


def _known(crawl: str, rows: Iterable[Any]) -> list[KnownURL]:
    found = []
    for row in rows:
        address, metadata = url_of(row.name, row.data)
        date = 0 if row.is_completed else _date(row.data) or row.created_at
        found.append(KnownURL(crawl, row.key, address, metadata, date, row.created_at))
    return found


def _date(data: Any) -> int:
    """Return the date that a crawler gave a URL; 0: it gave none."""
    date = data.get("refetchable_from_date") if isinstance(data, dict) else None
    if not isinstance(date, int) or isinstance(date, bool):
        return 0
    return date if 0 < date <= frontier.MAX_DATE else 0
