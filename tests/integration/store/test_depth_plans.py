"""Statements about depths read as many rows as their step has, however many pages there are."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa
from support import graphs
from support.plans import explaining

from scrapy_itemgraph.model import item_names
from scrapy_itemgraph.model.operations import CreateItem, DeleteItem, MergeItem
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.store.admin import depth_reports, dump_depths
from scrapy_itemgraph.store.depths import relax, sweeps
from scrapy_itemgraph.store.registry import crawl_depths

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.server

PAGES = 20_000
STEP = 10
MOST = 60 * STEP  # rows of tables that a statement may read for a step
# A page's row for each of some pages, and links in tens; and as much of another crawl.
FILL = (
    """INSERT INTO items (id, crawl_id, slot_id, name, data)
    SELECT n + :base, :crawl, 1, 'Q' || n, '{}' FROM generate_series(1, :pages) AS n""",
    """INSERT INTO tags (item_id, tag_name, crawl_id)
    SELECT n + :base, 'page', :crawl FROM generate_series(1, :pages) AS n""",
    """INSERT INTO depths (item_id, crawl_id, depth)
    SELECT n + :base, :crawl, 20 + n / 2000 FROM generate_series(1, :pages) AS n""",
    """INSERT INTO links (parent_id, part, children)
    SELECT n + :base, 0, ARRAY(
        SELECT :base + 1 + (n * 10 + k) % :pages FROM generate_series(0, 9) AS k)
    FROM generate_series(1, :pages) AS n""",
    """INSERT INTO depth_work (crawl_id, kind, depth, item_id, part)
    SELECT :crawl, kind, 1, n + :base, 0
    FROM generate_series(1, :pages) AS n CROSS JOIN generate_series(0, 2) AS kind""",
)
TABLES = ("depths", "links", "depth_work", "depth_sweeps", "items", "tags")


@pytest.fixture(params=["no statistics", "statistics", "statistics of before"])
def crawl(request, engine, monkeypatch) -> Iterator[graphs.Crawl]:
    """Yield one of two crawls with many pages, all of which are to be looked at."""
    monkeypatch.setattr(relax, "MOST_OFFERS", STEP)
    monkeypatch.setattr(relax, "MOST_PARTS", STEP)
    monkeypatch.setattr(sweeps, "STEP", STEP)
    monkeypatch.setattr(depth_reports, "MOST", STEP)
    monkeypatch.setattr(dump_depths, "STEP", STEP)
    monkeypatch.setattr(dump_depths, "MOST_CHILDREN", 4 * STEP)
    with engine.begin() as connection:
        for table in TABLES:
            connection.exec_driver_sql(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        crawl = graphs.Crawl.of(connection)
        other = graphs.Crawl(connection, "other", "other")
        for one in (crawl, other):
            crawl_depths.begin(connection, one.id, 15)
        crawl.do(*(CreateItem(f"P{number}", ["page"]) for number in range(5)))
        if request.param == "statistics of before":
            connection.exec_driver_sql("ANALYZE")
        for base, one in ((1_000_000, crawl), (2_000_000, other)):
            for statement in FILL:
                given = {"crawl": one.id, "base": base, "pages": PAGES}
                connection.execute(sa.text(statement), given)
        if request.param == "statistics":
            connection.exec_driver_sql("ANALYZE")
    with engine.connect() as connection:
        engines.hot_path(connection)
        crawl.connection = connection
        yield crawl
        connection.rollback()


def too_many(explained) -> dict[str, int]:
    """Return the statements about depths that read more than a step has, and how many rows."""
    return {
        one.name: one.rows
        for one in explained
        if one.rows > MOST and one.name.partition(".")[0] in MODULES
    }


MODULES = {
    *("relax", "sweeps", "links", "crawl_depths", "depth_reports", "claims", "refresh"),
    "dump_depths",
}


def test_a_step_reads_few_rows(crawl):
    """MNB-9: offers, links and freed pages are taken a step at a time, in flat plans."""
    connection = crawl.connection
    with explaining(connection) as explained:
        for kind in (1, 2):
            assert relax.relax(connection, crawl.id)
            assert sweeps.free(connection, crawl.id)
            connection.execute(
                sa.text("DELETE FROM depth_work WHERE crawl_id = :crawl AND kind = :kind"),
                {"crawl": crawl.id, "kind": kind},
            )
        crawl_depths.set_limit(connection, crawl.id, 25, by="a person")
        assert sweeps.sweep(connection, crawl.id)
        assert sweeps.sweep(connection, crawl.id)
        assert depth_reports.standing(connection, crawl.id).too_deep == STEP
        depth_reports.path(connection, 1_000_007)

    assert too_many(explained) == {}


def test_a_commit_of_links_reads_few_rows(crawl):
    """MNB-9: links of a page, known ones among them, a merge and a deletion."""
    (claim, *rest) = crawl.claim(5)
    crawl.release(*rest)
    links = {item_names.hex_key(f"P{number}") for number in range(5)}
    with explaining(crawl.connection) as explained:
        created = [CreateItem(f"N{number}", ["page"]) for number in range(STEP)]
        ended = replace(graphs.changeset(claim, *created), links=links)
        crawl.commit(ended)
        crawl.do(MergeItem(into="P3", id="P4"), DeleteItem("P2"))

    assert too_many(explained) == {}


def test_a_dump_reads_few_rows_at_a_time(crawl):
    """MNB-9: depths, links and what is to be worked out, from the first page on and from later."""
    read = (dump_depths.depths, dump_depths.links, dump_depths.work)
    with explaining(crawl.connection) as explained:
        for lines in read:
            assert len(list(islice(lines(crawl.connection, crawl.id), 5 * STEP))) == 5 * STEP

    assert {one.name for one in explained} >= {
        *("dump_depths.DEPTHS", "dump_depths.SIZES", "dump_depths.LINKS", "dump_depths.WORK"),
    }
    assert too_many(explained) == {}
