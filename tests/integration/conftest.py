"""Connections to step through an interleaving with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.races import actors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.races import Actor


@pytest.fixture
def pair(engine) -> Iterator[list[Actor]]:
    """Yield two connections."""
    with actors(engine, 2) as made:
        yield made
