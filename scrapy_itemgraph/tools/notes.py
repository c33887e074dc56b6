"""Notes about objects that are not to carry them."""

from __future__ import annotations

import weakref
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Notes(Generic[T]):
    """What is noted about objects, by which object it is and not by what it equals.

    A copy of an object has no note. A note goes with its object, and must not lead back to it.
    """

    __slots__ = ("_by_id", "_gone")

    def __init__(self) -> None:
        by_id: dict[int, _Note] = {}

        def gone(note: _Note) -> None:
            if by_id.get(note.about) is note:
                del by_id[note.about]

        self._by_id, self._gone = by_id, gone

    def __len__(self) -> int:
        """Return how many objects have a note."""
        return len(self._by_id)

    def get(self, about: Any) -> T | None:
        """Return what is noted about an object; None if nothing is."""
        note = self._by_id.get(id(about))
        return None if note is None else note.text

    def put(self, about: Any, text: T) -> None:
        """Note something about an object, in the place of what was noted before."""
        self._by_id[id(about)] = note = _Note(about, self._gone)
        note.about, note.text = id(about), text

    def pop(self, about: Any) -> T | None:
        """Take away what is noted about an object; None if nothing is."""
        note = self._by_id.pop(id(about), None)
        return None if note is None else note.text


class _Note(weakref.ref[Any]):
    __slots__ = ("about", "text")
    about: int
    text: Any
