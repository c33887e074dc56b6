"""A crawl that several connections work on."""

from __future__ import annotations

import pytest
from support.raced_books import Books
from support.races import Crawl


@pytest.fixture
def crawl(engine) -> Crawl:
    """Make a crawl with one task."""
    return Crawl(engine, Books)
