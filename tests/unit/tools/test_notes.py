"""Notes about objects: by which object it is, and no longer than it is there."""

from __future__ import annotations

import gc

from scrapy_itemgraph.tools.notes import Notes


class Page:
    """All of its kind are equal."""

    def __eq__(self, other):
        return isinstance(other, Page)

    __hash__ = None


def test_a_note_is_about_one_object():
    """Equal objects have notes of their own; the last one counts until it is taken away."""
    notes, one, other = Notes(), Page(), Page()
    notes.put(one, "first")
    notes.put(one, "second")

    assert (notes.get(one), notes.get(other)) == ("second", None)
    assert (notes.pop(one), notes.pop(one), notes.get(one)) == ("second", None, None)


def test_a_note_goes_with_its_object():
    """Nothing is left of an object that is gone; a note that was replaced takes none with it."""
    notes, one = Notes(), Page()
    notes.put(one, 1)
    notes.put(one, 2)
    gc.collect()
    assert len(notes) == 1

    del one
    gc.collect()

    assert len(notes) == 0
