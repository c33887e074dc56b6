"""A crawl, commands on its database, and what its workers are notified of."""

from __future__ import annotations

import pytest
from support.graphs import Crawl


@pytest.fixture
def crawl(engine):
    """Yield a crawl, on a connection that `scrapy` commits before each command."""
    with engine.connect() as connection:
        yield Crawl.of(connection)
        connection.rollback()
