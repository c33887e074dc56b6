"""Connections that threads still have as their graph is closed."""

from __future__ import annotations

from pathlib import Path

import pytest

from scrapy_itemgraph.connections import connect


@pytest.mark.parametrize("is_new", [False, True])
def test_what_a_thread_still_has_is_closed_as_it_gives_it_back(database, is_new):
    """No connection stays open after a server has ended, one that was made meanwhile neither."""
    with connect.connected(database, Path(), None, connections=2) as (engine, _):
        held = None if is_new else engine.connect()
    held = held or engine.connect()
    raw = held.connection.driver_connection
    assert held.exec_driver_sql("SELECT 1").scalar() == 1

    held.close()
    assert raw.closed
