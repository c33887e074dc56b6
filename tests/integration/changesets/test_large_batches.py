"""Large batches: what they come to is what small ones do, in statements of bounded size."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import sqlalchemy as sa
from support import graphs

from scrapy_itemgraph import (
    CreateItem,
    DeleteItem,
    Expire,
    MergeItem,
    RenameItem,
    StoreResult,
    UpdateData,
)
from scrapy_itemgraph.model.feed_exports import Scraped
from scrapy_itemgraph.model.operations import Changeset
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.postgres.event_loop import CHUNK, LARGE_CHUNK
from scrapy_itemgraph.store import queues
from scrapy_itemgraph.store import slots as stored_slots
from scrapy_itemgraph.tools import parted_dict

pytestmark = pytest.mark.server

COUNT = 260  # items of each kind, so that all are more than a chunk
KINDS = ("known", "gone", "into", "deleted", "tombstone", "expired")

# All of a crawl's graph and work, apart from numbers and times.
PICTURE = """
    SELECT i.name, CAST(i.data AS text), l.name AS slot,
        ARRAY(SELECT a.name FROM aliases a WHERE a.item_id = i.id ORDER BY 1) AS names,
        ARRAY(SELECT concat(g.tag_name, g.value) FROM tags g WHERE g.item_id = i.id ORDER BY 1),
        ARRAY(SELECT concat(t.name, r.metadata, r.completed_at IS NULL, r.invalidated_at IS NULL)
            FROM results r JOIN tasks t ON t.id = r.task_id WHERE r.item_id = i.id ORDER BY 1),
        ARRAY(SELECT concat(t.name, w.is_stale, w.nice) FROM work w
            JOIN tasks t ON t.id = w.task_id WHERE w.item_id = i.id ORDER BY 1)
    FROM items i JOIN limits l ON l.id = i.slot_id WHERE i.crawl_id = :crawl ORDER BY i.name
"""


@contextmanager
def sizes(connection):
    """Yield how many values the arrays have that statements are given, as a list that grows."""
    seen = []

    def look(_connection, _cursor, _statement, given, *_):
        for value in given.values() if isinstance(given, dict) else ():
            if isinstance(value, list):
                seen.append(len(value))
            elif isinstance(value, str) and value.startswith("{"):
                seen.append(value.count(",") + 1)

    sa.event.listen(connection, "before_cursor_execute", look)
    try:
        yield seen
    finally:
        sa.event.remove(connection, "before_cursor_execute", look)


def seeded(connection, name):
    """Make a crawl with items of each kind."""
    crawl = graphs.Crawl(connection, name)
    crawl.register(parse={"tags": ["page"]})
    data = {"url": "http://a.example/"}
    crawl.do(*(CreateItem(f"{kind} {n}", ["page"], data) for kind in KINDS for n in range(COUNT)))
    crawl.do(
        *(
            StoreResult({"n": n}, id=f"{kind} {n}", task="parse")
            for kind in ("gone", "expired")
            for n in range(COUNT)
        )
    )
    return crawl


def changes(n):
    """Return operations of many kinds on items of this number."""
    return [
        CreateItem(f"known {n}", {"seen": n}, merge_tags=True),
        UpdateData({"n": n}, id=f"known {n}"),
        UpdateData({"m": n}, id=f"known {n}"),
        RenameItem(f"renamed {n}", id=f"known {n}"),
        MergeItem(f"into {n}", id=f"gone {n}"),
        DeleteItem(f"deleted {n}"),
        DeleteItem(f"tombstone {n}", forget=False),
        Expire(id=f"expired {n}"),
        UpdateData({"n": n}, id=f"upsert {n}", upsert=True),
        CreateItem(f"tombstone {n}", ["page"]),
        CreateItem(f"new {n}", ["page"], {"url": f"http://{n}.example/"}),
    ]


@pytest.mark.parametrize("many", [parted_dict.MANY, 11 * COUNT])
def test_a_large_batch_of_many_kinds_is_what_small_ones_are(connection, monkeypatch, many):
    """Names, items, tags, results and work are the same, and no statement has too much at once.

    Also where its names are so many that their mappings are in parts.
    """
    monkeypatch.setattr(parted_dict, "MANY", many)
    small, large = seeded(connection, "small"), seeded(connection, "large")

    for start in range(0, COUNT, COUNT // 4):
        small.do(*(one for n in range(start, start + COUNT // 4) for one in changes(n)))
    with sizes(connection) as seen:
        large.do(*(one for n in range(COUNT) for one in changes(n)))
    connection.exec_driver_sql("ANALYZE")  # else the picture scans tables for each item

    assert large.rows(PICTURE, crawl=large.id) == small.rows(PICTURE, crawl=small.id)
    assert max(seen) <= LARGE_CHUNK


def test_a_page_may_link_to_a_great_many_websites(connection):
    """Their slots and queues are made and woken a part at a time, each part in order."""
    crawl = graphs.Crawl.of(connection)
    count = LARGE_CHUNK + 50
    links = [CreateItem(f"{n}", ["page"], {"url": f"http://{n}.example/"}) for n in range(count)]

    with sizes(connection) as seen:
        crawl.do(*links)

    assert max(seen) <= LARGE_CHUNK
    connection.exec_driver_sql("ANALYZE")  # else the join scans tables for each row
    awake = crawl.rows(
        "SELECT l.name FROM queues q JOIN limits l ON l.id = q.slot_id"
        " JOIN work w ON w.queue_id = q.id WHERE q.is_live AND q.crawl_id = :crawl",
        crawl=crawl.id,
    )
    assert sorted(awake) == sorted((f"{n}.example",) for n in range(count))


def test_slots_that_are_known_and_new_are_told_apart(connection):
    """Of a great many names each has one number, whoever asks first."""
    names = [f"{n}.example" for n in range(LARGE_CHUNK + 50)]
    known = stored_slots.intern_slots(connection, names[::2])

    found = stored_slots.intern_slots(connection, [*names, *names[:10]])

    assert found.keys() == set(names)
    assert len(set(found.values())) == len(names)
    assert {name: found[name] for name in known} == known


def test_a_great_many_queues_are_woken(connection):
    """Those that sleep, and each is live after it."""
    crawl = graphs.Crawl.of(connection)
    slots = stored_slots.intern_slots(connection, [f"{n}.example" for n in range(LARGE_CHUNK + 50)])
    made = queues.find_or_make(connection, {(crawl.id, slot): None for slot in slots.values()})
    crawl.rows("UPDATE queues SET is_live = false WHERE id % 2 = 0 RETURNING id")

    queues.wake(connection, made.values())

    assert crawl.rows("SELECT count(*) FROM queues WHERE NOT is_live") == [(0,)]


def test_a_great_many_scraped_items_are_kept_in_their_order(connection):
    """The journal has them as they were scraped."""
    crawl = graphs.Crawl.of(connection)
    scraped = tuple(Scraped("Book", f'{{"n": {n}}}') for n in range(2 * CHUNK + 50))

    with sizes(connection) as seen:
        crawl.commit(Changeset(operations=(), outcome=Outcome.OK, scraped=scraped))

    assert max(seen) <= LARGE_CHUNK
    kept = crawl.rows("SELECT CAST(fields AS text) FROM journal ORDER BY id")
    assert [fields for (fields,) in kept] == [one.fields for one in scraped]


def test_many_updates_of_one_item_are_done_in_their_order(connection):
    """Mappings and callables see what those before them left, and an execution its own copy."""
    crawl = graphs.Crawl.of(connection)
    seen = []

    def merge(old):
        seen.append(dict(old))
        return {**old, "last": len(old)}

    first = [UpdateData({f"key {n}": n}) for n in range(100)]
    crawl.commit(
        graphs.changeset(crawl.claimed("A"), *first, UpdateData(merge), UpdateData({"key 0": "x"})),
        graphs.changeset(
            crawl.claimed("B"),
            UpdateData({"n": 2}, id="A"),
            UpdateData({"no": 1}),
            UpdateData({}, id="nobody"),
        ),
        graphs.changeset(None, UpdateData({"n": 1}, id="A")),
    )

    (old,) = seen
    assert old == {"url": old["url"], **{f"key {n}": n for n in range(100)}}
    assert crawl.get("A").data == {**old, "last": 101, "key 0": "x", "n": 1}


def test_a_long_chain_of_merges_ends_at_its_last_item(connection):
    """Attempts of all that were merged are the survivor's."""
    crawl = graphs.Crawl.of(connection)
    count = 60
    for n in range(count):
        crawl.done(f"{n}")

    crawl.do(*(MergeItem(f"{n + 1}", id=f"{n}") for n in range(count - 1)))

    assert len(crawl.rows("SELECT DISTINCT item_id FROM attempts")) == 1
    assert crawl.get("0").id == f"{count - 1}"
    assert len(crawl.get("0").aliases) == count - 1
