"""Texts that were seen, however many, in about a dozen bytes each."""

from __future__ import annotations

from array import array

_BUCKETS = 1 << 14


class SeenTexts:
    """Remembers texts by 64 bits of hash each.

    Two texts of one hash are taken for the same: among ten million that happens once in 300,000
    processes.
    """

    __slots__ = ("_buckets",)

    def __init__(self) -> None:
        self._buckets: dict[int, array[int]] = {}

    def add(self, text: str) -> bool:
        """Remember a text; return whether it had been seen before."""
        hashed = hash(text)
        bucket = self._buckets.get(hashed % _BUCKETS)
        if bucket is None:
            bucket = self._buckets[hashed % _BUCKETS] = array("q")
        if hashed in bucket:
            return True
        bucket.append(hashed)
        return False
