"""Mutations of the package are made by hand, but for this: their texts are there."""

from __future__ import annotations

from model import mutations


def test_each_mutation_can_be_made():
    """A text that was moved or changed is named anew in the mutations, too."""
    assert mutations._problems() == []
