"""A server of the URL frontier on the test's own database."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support import frontier

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def served(database) -> Iterator[frontier.Frontier]:
    """Serve the test's own database."""
    with frontier.serving(database) as one:
        yield one


@pytest.fixture
def client(served) -> frontier.Client:
    """Return a client of that server."""
    return served.client
