"""A crawl that several connections work on."""

from __future__ import annotations

import pytest
from raced_books import Books
from races import Crawl


@pytest.fixture
def crawl(engine) -> Crawl:
    """Make a crawl with one task."""
    return Crawl(engine, Books)
