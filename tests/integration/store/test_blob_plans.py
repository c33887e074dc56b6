"""Statements about blobs read few rows, however many there are and whatever statistics say."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from support.plans import JOINS, explaining

from scrapy_itemgraph.model.blobs import Content
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.store import blobs

pytestmark = pytest.mark.server

COUNT = 30_000
MOST = 60  # rows of tables that a statement may read for ten contents, items or blobs
FILL = (
    """INSERT INTO blob_contents (sha256, size, store, state, collect_at)
    SELECT sha256(n::text::bytea), n, 'file:///blobs', 'stored',
        CASE WHEN n % 99 = 0 THEN now() + interval '1 day' END
    FROM generate_series(1, :count) n""",
    """INSERT INTO blobs (item_id, name, content_id, attached_at)
    SELECT n, 'page', n, now() FROM generate_series(1, :count) n WHERE n % 2 = 0""",
)


@pytest.fixture(params=["no statistics", "statistics"])
def filled(request, engine):
    """Yield a transaction on tables with many contents, half of them named."""
    with engine.begin() as connection:
        for table in ("blobs", "blob_contents"):
            connection.exec_driver_sql(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        for statement in FILL:
            connection.execute(sa.text(statement), {"count": COUNT})
        if request.param == "statistics":
            connection.exec_driver_sql("ANALYZE")
    with engine.connect() as connection:
        engines.hot_path(connection)
        yield connection
        connection.rollback()


def some(first: int, count: int = 10) -> list[Content]:
    """Return measured contents."""
    return [
        Content(size=n, digest=hashlib.sha256(str(n).encode()).digest())
        for n in range(first, first + count)
    ]


def test_statements_about_blobs_read_few_rows(filled):
    """Announcing, marking, holding, attaching, detaching and collecting stay with their rows."""
    place = "file:///blobs"
    with explaining(filled) as explained:
        known, new = some(1000), some(COUNT + 1000)
        assert blobs.announce(filled, [*known, *new], place) == new
        assert blobs.mark_stored(filled, new, new) == []
        numbers = [one.number for one in (*known, *new)]
        assert None not in numbers
        blobs.hold(filled, numbers)
        moment = datetime.now(UTC)
        blobs.attach(filled, [(n, "page", n + 1, None, moment) for n in range(1000, 1010)])
        filled.execute(blobs.OF_ITEMS, {"items": list(range(1000, 1010))})
        blobs.detach(filled, [(n, "page") for n in range(1000, 1010)])
        blobs.of_item(filled, 2000)
        blobs.place(filled, 2000, "page")
        found = blobs.collect(filled, {place}, ahead=timedelta(days=2), limit=10)
        assert len(found.doomed) > 0
        assert blobs.forget(filled, found.doomed) == len(found.doomed)

    assert len(explained) >= 12
    for one in explained:
        assert one.rows <= MOST, (one.name, one.rows)
        kinds = {(node["Node Type"], node.get("Relation Name")) for node in one.nodes}
        assert not {kind for kind, _ in kinds} & JOINS, one.name
        for kind, relation in kinds:
            is_whole = kind in {"Seq Scan", "Bitmap Heap Scan"}
            assert not (is_whole and relation in {"blobs", "blob_contents"}), (one.name, kind)
