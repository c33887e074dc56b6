"""Items added in bulk: the same as by `apply`, whatever they are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import graphs, oracle

from scrapy_itemgraph.changesets import additions
from scrapy_itemgraph.exceptions import DatabaseError
from scrapy_itemgraph.graph.item_graph import ItemGraph
from scrapy_itemgraph.model import item_names
from scrapy_itemgraph.model import operations as ops
from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store.registry import crawls

pytestmark = pytest.mark.server

PROFILE = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=40,
    suppress_health_check=list(HealthCheck),
)

TASKS = {
    "parse": {"tags": ["page"]},
    "index": {"tags": ["list", "page"], "nice": 5, "slot": "elsewhere.example"},
    "review": {"tags": ["page"], "depends_on": ["parse"]},
    "rated": {"tags": ["rated"], "rate_limit_by_tag": {"rated": "1/s"}},
}

# What is there before: an item, another name of it, and a name that stays taken.
BEFORE = (
    ops.CreateItem("there", ["page"], {"url": "http://a.example/there"}, aliases=["also"]),
    ops.CreateItem("gone"),
    ops.DeleteItem("gone", forget=False),
)

STARTS = (timedelta(hours=1), timedelta(0), datetime(2100, 1, 1, tzinfo=UTC))

creations = st.lists(
    st.builds(
        ops.CreateItem,
        st.sampled_from(
            ["there", "also", "gone", *"ABCDEF", "ß ☃", 'quo"te\\', "{NULL}", "a\tb\r\n\\N"]
        ),
        st.sampled_from(
            [(), ["page"], ["list"], ["page", "list"], {"page": {"a": [1, None]}, "rated": 'x"\t'}]
        ),
        st.sampled_from(
            [
                {},
                {"url": "http://a.example/1"},
                {"url": "http://b.example/", "t": 'ü"\\\n'},
                {"download_slot": "own", "n": 1.5},
            ]
        ),
        nice=st.sampled_from([None, None, -3]),
        not_before=st.one_of(st.none(), st.sampled_from(STARTS)),
        created_by=st.sampled_from([None, "there", "nobody"]),
    ),
    max_size=12,
)

STATE = """
    SELECT i.name, i.created_by, i.nice,
        CASE WHEN i.not_before < '2099-01-01' THEN CAST(i.not_before - i.created_at AS text)
            ELSE CAST(i.not_before AS text) END,
        t.name,
        l.name, k.limit_ids, w.is_stale, w.nice, w.not_before IS NULL
    FROM items i LEFT JOIN work w ON w.item_id = i.id LEFT JOIN tasks t ON t.id = w.task_id
    LEFT JOIN queues q ON q.id = w.queue_id LEFT JOIN limits l ON l.id = q.slot_id
    LEFT JOIN kinds k ON k.id = w.kind_id
    WHERE i.crawl_id = :crawl ORDER BY w.seq, i.id
"""


def outcome(connection, crawl, add):
    """Return the notes of what `add` did, and the graph after it."""
    crawl.do(*BEFORE)
    engine.hot_path(connection)
    notes = add(crawls.share_crawl(connection, crawl.id))
    oracle.assert_worklist_is_true(connection, crawl.id)
    oracle.assert_rows_have_items(connection)
    rows = connection.execute(sa.text(STATE), {"crawl": crawl.id}).all()
    return notes, graphs.graph_state(connection, crawl.id), [tuple(row) for row in rows]


@PROFILE
@given(created=creations)
def test_it_means_the_same_as_apply(connection, created):
    """Notes, items, names, tags and work in its order are those that `apply` makes."""
    checked = [ops.checked(one, "here") for one in created]
    plain = additions.of(checked)
    assert plain.creations == checked

    with connection.begin_nested() as nested:
        one, other = (graphs.Crawl(connection, name) for name in ("one", "other"))
        one.register(**TASKS)
        other.register(**TASKS)
        by_apply = outcome(connection, one, lambda _: list(one.end(None, *checked).notes))
        at_once = outcome(
            connection,
            other,
            lambda shared: additions.add(connection, plain, crawl=shared),
        )
        nested.rollback()

    assert at_once == by_apply


@pytest.mark.parametrize(
    "other",
    [
        ops.CreateItem("A", aliases=["B"]),
        ops.CreateItem("A", fail_if_exists=True),
        ops.CreateItem("A", merge_tags=True),
        ops.AddTag("page", id="A"),
    ],
)
def test_what_does_more_than_create_goes_through_apply(other):
    """Operations with aliases, or that look at what is there, are no additions."""
    assert additions.of([ops.CreateItem("B"), ops.checked(other, "here")]) is None


def test_two_ids_of_one_key_are_refused(connection, monkeypatch):
    """An id whose key another one has is an error, not taken for known."""
    crawl = graphs.Crawl.of(connection)
    crawl.do(ops.CreateItem("A"))
    key = item_names.hex_key("A")
    monkeypatch.setattr(item_names, "hex_key", lambda _: key)

    with pytest.raises(DatabaseError, match="the ids 'B' and 'A' have the same key"):
        additions.add(
            connection,
            additions.of([ops.CreateItem("B")]),
            crawl=crawls.share_crawl(connection, crawl.id),
        )


def test_the_door_checks_what_was_not_checked(database):
    """`ItemGraph.apply` refuses what cannot be stored, and takes checked operations as they are."""
    with ItemGraph.open(database, "books") as graph:
        with pytest.raises(ops.OperationError, match="operation 2: CreateItem: id is empty"):
            graph.apply([ops.CreateItem("A"), ops.CreateItem("")])
        notes = graph.apply(ops.Checked([ops.CreateItem("A", ["page"]), ops.CreateItem("A")]))

        assert [note.label for note in notes] == ["new", "known"]
        assert [item.id for item in graph.items()] == ["A"]
