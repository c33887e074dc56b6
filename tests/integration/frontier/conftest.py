"""A frontier on the database of a test, without gRPC."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support import frontiers

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def server(engine) -> Iterator[frontiers.Frontier]:
    """Yield a frontier on a database of its own."""
    with frontiers.opened(engine) as one:
        yield one
