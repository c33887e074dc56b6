"""Crawls whose workers hold limits."""

from __future__ import annotations

import pytest
from support.graphs import Crawl


@pytest.fixture
def crawl(connection) -> Crawl:
    """Make a crawl with a worker."""
    return Crawl.of(connection)


@pytest.fixture
def other_crawl(connection, crawl) -> Crawl:
    """Make another crawl in the same database."""
    return Crawl(connection, "films", "cinema")
