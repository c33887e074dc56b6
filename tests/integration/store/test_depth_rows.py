"""Rows of depths go with their crawl, and may be written by whoever may add pages."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from support import graphs

from scrapy_itemgraph.model.operations import CreateItem
from scrapy_itemgraph.model.roles import RoleKind
from scrapy_itemgraph.postgres import grants
from scrapy_itemgraph.store.admin import crawl_changes, crawl_contents
from scrapy_itemgraph.store.registry import crawl_depths

pytestmark = pytest.mark.server

TABLES = ("depths", "links", "depth_work", "depth_sweeps")
MAY_INSERT = sa.text("SELECT has_table_privilege('depth_scheduler', :table, 'INSERT')")


@pytest.fixture
def tracked(connection):
    """Return a crawl that tracks depth, one page of which links to another."""
    crawl = graphs.Crawl.of(connection)
    crawl_depths.begin(connection, crawl.id, 2)
    crawl.done("A", CreateItem("B", ["page"]))
    crawl_depths.find_anew(connection, crawl.id)
    return crawl


def test_a_restart_leaves_nothing_of_depths(connection, tracked):
    """MNB-9: depths, links and what is to be done about them go with the pages, and are counted."""
    held = crawl_contents.holds(connection, tracked.id)
    gone = crawl_changes.restart(connection, tracked.id)

    assert (held["depths"], held["links"], held["sweeps of depths"]) == (2, 1, 2)
    assert {name: gone[name] for name in held} == held
    for table in TABLES:
        assert not connection.scalar(sa.text(f"SELECT count(*) FROM {table}"))


def test_who_may_add_pages_may_write_their_depths(connection):
    """MNB-9: a role that schedules adds pages to a crawl that tracks depth."""
    connection.execute(sa.text("CREATE ROLE depth_scheduler"))
    for statement in grants.of_kind(connection, RoleKind.SCHEDULER, "depth_scheduler").statements:
        connection.exec_driver_sql(statement.replace("%", "%%"))

    assert all(connection.scalar(MAY_INSERT, {"table": table}) for table in TABLES)
