"""Both graphs as plain values to be compared: the model's, and the database's."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from model.item_graph import Pair

from scrapy_itemgraph.contents import stores as content_stores

if TYPE_CHECKING:
    from model.crawls import Crawl
    from sqlalchemy import Connection

# Hours from now, to a quarter: a history takes seconds, and its clock goes by quarters of an hour.
ITEMS = sa.text("""
    SELECT i.id, i.name, i.data, i.created_by, i.nice, s.name AS slot,
        ARRAY(SELECT a.name FROM aliases a WHERE a.item_id = i.id ORDER BY a.name COLLATE "C")
            AS names,
        (SELECT coalesce(json_object_agg(g.tag_name, g.value), '{}') FROM tags g
            WHERE g.item_id = i.id) AS tags
    FROM items i JOIN limits s ON s.id = i.slot_id WHERE i.crawl_id = :crawl
""")
TOMBSTONES = sa.text("SELECT name FROM aliases WHERE crawl_id = :crawl AND item_id IS NULL")
RESULTS = sa.text("""
    SELECT i.name AS item, t.name AS task, r.metadata, r.is_held, r.ttl_overridden,
        CASE WHEN r.completed_at IS NOT NULL THEN r.run END AS run,
        CASE WHEN r.completed_at IS NOT NULL THEN r.task_version END AS version,
        r.invalidated_at IS NOT NULL AS is_expired,
        (SELECT j.name FROM aliases a JOIN items j ON j.id = a.item_id
            WHERE a.crawl_id = i.crawl_id AND a.key = r.led_to) AS led_to,
        extract(epoch FROM r.completed_at - clock_timestamp()) / 3600 AS completed,
        extract(epoch FROM r.expires_at - clock_timestamp()) / 3600 AS expires,
        ARRAY(SELECT CASE WHEN f.is_refusal THEN 'refused' ELSE 'failed' END FROM failures f
            WHERE f.item_id = r.item_id AND f.task_id = r.task_id AND f.handled_at IS NULL
            ORDER BY f.id) AS open,
        CASE WHEN r.hold IS NOT NULL THEN r.hold
            WHEN r.is_held AND r.is_successful THEN 'gone'
            WHEN r.is_held THEN 'held' WHEN r.completed_at IS NULL THEN 'never run'
            WHEN r.task_version = t.version AND r.invalidated_at IS NULL
                AND (r.expires_at IS NULL OR r.due_at IS NOT NULL) THEN 'fresh'
            ELSE 'stale' END AS state
    FROM results r JOIN tasks t ON t.id = r.task_id JOIN items i ON i.id = r.item_id
    WHERE i.crawl_id = :crawl
""")
DEPTHS = sa.text("""
    SELECT i.name, d.depth FROM items i LEFT JOIN depths d ON d.item_id = i.id
    WHERE i.crawl_id = :crawl
""")
SILENT = {
    "state": "never run",
    "metadata": {},
    "version": None,
    "run": None,
    "completed": None,
    "expires": None,
    "has own ttl": False,
    "is expired": False,
    "led to": None,
    "open": [],
}
ATTEMPTS = sa.text("""
    SELECT i.name AS item, t.name AS task, a.number, a.outcome
    FROM attempts a JOIN tasks t ON t.id = a.task_id LEFT JOIN items i ON i.id = a.item_id
    WHERE t.crawl_id = :crawl ORDER BY a.id
""")
BLOBS = sa.text("""
    SELECT i.name AS item, b.name, b.mime, c.id, encode(c.sha256, 'hex') AS sha256, c.size,
        c.content, c.store,
        extract(epoch FROM b.attached_at - clock_timestamp()) / 3600 AS attached
    FROM blobs b JOIN items i ON i.id = b.item_id LEFT JOIN blob_contents c ON c.id = b.content_id
    WHERE i.crawl_id = :crawl
""")
CONTENTS = sa.text("""
    SELECT id, content, store, encode(sha256, 'hex') AS sha256 FROM blob_contents
""")
STRAY_FAILURES = sa.text("""
    SELECT f.item_id, f.task_id FROM failures f WHERE f.handled_at IS NULL AND NOT EXISTS (
        SELECT FROM results r WHERE r.item_id = f.item_id AND r.task_id = f.task_id)
""")
# A claim of an item that is gone stands until it ends, and is lost then.
WORK = sa.text("""
    SELECT i.name AS item, t.name AS task, w.worker_id AS worker, w.tries, w.deaths,
        w.alone_deaths, w.is_stale, w.nice, w.seq, w.request, s.name AS slot,
        extract(epoch FROM w.not_before - clock_timestamp()) / 3600 AS not_before
    FROM work w JOIN tasks t ON t.id = w.task_id JOIN queues q ON q.id = w.queue_id
    JOIN limits s ON s.id = q.slot_id LEFT JOIN items i ON i.id = w.item_id
    WHERE w.crawl_id = :crawl AND (i.id IS NOT NULL OR w.token IS NULL)
""")
EXPIRIES = sa.text("""
    SELECT w.token, r.invalidated_at FROM work w
    JOIN results r ON r.item_id = w.item_id AND r.task_id = w.task_id
    WHERE w.crawl_id = :crawl AND w.token IS NOT NULL
""")

KEPT_ATTEMPTS = 10  # of each pair


def _telling(results: dict[str, Any]) -> dict[str, Any]:
    """Return results without those that say nothing.

    An `Expire` leaves one with a pair that runs for the first time. Whether it still runs where it
    is given back in the same batch, the requirements do not say.
    """
    return {task: one for task, one in results.items() if one != SILENT}


def _hours(value: Any) -> float | None:
    return None if value is None else round(float(value) * 4) / 4


def stored_graph(connection: Connection, crawl_id: int) -> dict[str, Any]:
    """Return items, names and results as the database has them."""
    crawl = {"crawl": crawl_id}
    assert not connection.execute(STRAY_FAILURES).all(), "open failures without a result"
    items = {
        row.name: {
            "data": row.data,
            "names": list(row.names),
            "tags": row.tags,
            "created_by": row.created_by,
            "nice": row.nice,
            "slot": row.slot,
            "results": {},
            "attempts": {},
            "blobs": {},
        }
        for row in connection.execute(ITEMS, crawl)
    }
    for row in connection.execute(RESULTS, crawl):
        items[row.item]["results"][row.task] = {
            "state": row.state,
            "metadata": row.metadata or {},
            "version": row.version,
            "completed": _hours(row.completed),
            "run": row.run,
            "expires": _hours(row.expires),
            "has own ttl": row.ttl_overridden,
            "is expired": row.is_expired and row.completed is not None,
            "led to": row.led_to,
            "open": list(row.open),
        }
    for item in items.values():
        item["results"] = _telling(item["results"])
    for row in connection.execute(BLOBS, crawl):
        items[row.item]["blobs"][row.name] = {
            "content": _content(row),
            "size": row.size,
            "sha256": row.sha256,
            "mime": row.mime,
            "attached": _hours(row.attached),
        }
    for row in connection.execute(ATTEMPTS, crawl):
        assert row.item is not None, "attempts at an item that is gone"
        attempts = items[row.item]["attempts"].setdefault(row.task, [])
        attempts[:] = [*attempts, (row.number, row.outcome)][-KEPT_ATTEMPTS:]
    return {"items": items, "taken": sorted(connection.execute(TOMBSTONES, crawl).scalars())}


def _content(row: Any) -> bytes:
    """Return a content from where its row says that it is."""
    if row.content is not None:
        return bytes(row.content)
    store = content_stores.opened(row.store)
    assert store is not None
    return b"".join(store.read(bytes.fromhex(row.sha256), row.id))


def stored_depths(connection: Connection, crawl_id: int) -> dict[str, int]:
    """Return how deep items are, 0 where that is not known."""
    rows = connection.execute(DEPTHS, {"crawl": crawl_id})
    return {row.name: row.depth or 0 for row in rows}


def stored_contents(connection: Connection) -> dict[int, bytes]:
    """Return all contents there are, by number."""
    return {row.id: _content(row) for row in connection.execute(CONTENTS)}


def _name_of(crawl: Crawl, name: str | None) -> str | None:
    """Return the id of the item that has a name by now; None where there is none."""
    owner = None if name is None else crawl.names.get(name)
    return None if owner is None else crawl.items[owner].name


def model_graph(crawl: Crawl) -> dict[str, Any]:
    """Return items, names and results as the model has them."""
    items = {}
    for number, item in crawl.items.items():
        items[item.name] = {
            "data": item.data,
            "names": crawl.names_of(number),
            "tags": item.tags,
            "created_by": item.created_by,
            "nice": item.nice,
            "slot": item.slot,
            "results": _telling(
                {
                    task: {
                        "state": crawl.state(Pair(number, task)),
                        "metadata": result.metadata,
                        "version": result.version if result.completed else None,
                        "run": result.run if result.completed else None,
                        "completed": _since(crawl, result.completed and result.completed[0]),
                        "expires": _since(crawl, result.expires),
                        "has own ttl": result.has_own_ttl,
                        "is expired": result.expired is not None and result.completed is not None,
                        "led to": _name_of(crawl, result.led_to),
                        "open": result.open,
                    }
                    for task, result in item.results.items()
                }
            ),
            "attempts": {
                task: [(one.number, one.outcome) for one in attempts[-KEPT_ATTEMPTS:]]
                for task, attempts in item.attempts.items()
            },
            "blobs": {
                name: {
                    "content": blob.content,
                    "size": len(blob.content),
                    "sha256": hashlib.sha256(blob.content).hexdigest(),
                    "mime": blob.mime,
                    "attached": _since(crawl, blob.attached[0]),
                }
                for name, blob in item.blobs.items()
            },
        }
    return {
        "items": items,
        "taken": sorted(name for name, owner in crawl.names.items() if owner is None),
    }


def _since(crawl: Crawl, hour: float | None) -> float | None:
    return None if hour is None else _hours(hour - crawl.now)


def stored_work(connection: Connection, crawl_id: int) -> tuple[dict[str, Any], list[Any]]:
    """Return work by item and task, and the unclaimed in its order."""
    rows = connection.execute(WORK, {"crawl": crawl_id}).all()
    work = {
        f"{row.item} {row.task}": {
            "worker": row.worker,
            "tries": row.tries,
            "deaths": (row.deaths, row.alone_deaths),
            "request": row.request,
        }
        | (
            {}
            if row.worker is not None
            else {
                "is stale": row.is_stale,
                "nice": row.nice,
                "slot": row.slot,
                "not before": _hours(row.not_before),
            }
        )
        for row in rows
    }
    unclaimed = [row for row in rows if row.worker is None]
    unclaimed.sort(key=lambda row: (row.is_stale, row.nice, row.seq))
    return work, [f"{row.item} {row.task}" for row in unclaimed]


def model_work(crawl: Crawl) -> dict[str, Any]:
    """Return work by item and task."""
    found = {}
    for pair, work in crawl.work.items():
        waits = work.not_before is not None and work.not_before > crawl.now
        described = {
            "worker": work.worker,
            "tries": work.tries,
            "deaths": (work.deaths, work.deaths_alone),
            "request": work.request,
        }
        if work.worker is None:
            described |= {
                "is stale": crawl.state(pair) == "stale",
                "nice": crawl.nice(pair),
                "slot": crawl.slot(pair),
                "not before": _since(crawl, work.not_before) if waits else None,
            }
        found[f"{crawl.items[pair.item].name} {pair.task}"] = described
    return found
