"""A crawl of one task."""

from __future__ import annotations

import pytest
from support import graphs, oracle


@pytest.fixture
def crawl(connection):
    """Yield a crawl with one task, and check its worklist at the end."""
    crawl = graphs.Crawl.of(connection)
    yield crawl
    oracle.assert_worklist_is_true(connection, crawl.id)
