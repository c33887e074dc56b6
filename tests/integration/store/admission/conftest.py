"""A crawl, and another worker of it."""

from __future__ import annotations

import pytest
from support.graphs import Crawl


@pytest.fixture
def crawl(connection) -> Crawl:
    """Make a crawl with one task."""
    return Crawl.of(connection)


@pytest.fixture
def other(crawl) -> int:
    """Register another worker of the crawl."""
    return crawl.new_worker()
