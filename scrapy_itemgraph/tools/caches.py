"""Caches of a process: names, values and texts that it met before, in little memory."""

from __future__ import annotations

from array import array
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_BUCKETS = 1 << 14


class KnownNames:
    """The names met last: between half of `most` and `most` of them.

    Two sets stand for an order, which would take twice the memory: once the younger one is full it
    becomes the older one, which is forgotten. A name that is met again becomes young.
    """

    __slots__ = ("_full", "_old", "_young")

    def __init__(self, most: int) -> None:
        self._full = most // 2
        self._young: set[str] = set()
        self._old: set[str] = set()

    def __contains__(self, name: object) -> bool:
        """Tell whether a name is known, and note that it was met again."""
        if name in self._young:
            return True
        if not isinstance(name, str) or name not in self._old:
            return False
        self.add(name)
        return True

    def __len__(self) -> int:
        """Return how many are known."""
        return len(self._young | self._old)

    def add(self, name: str) -> None:
        """Take note of a name."""
        if len(self._young) >= self._full:
            self._young, self._old = set(), self._young
        self._young.add(name)

    def clear(self) -> None:
        """Forget all."""
        self._young, self._old = set(), set()


class LastValues(Generic[K, V]):
    """The values used last: between half of `most` and `most` of them; None is no value.

    Two dictionaries stand for an order, as in `KnownNames`.
    """

    __slots__ = ("_full", "_old", "_young")

    def __init__(self, most: int) -> None:
        self._full = most // 2
        self._young: dict[K, V] = {}
        self._old: dict[K, V] = {}

    def __len__(self) -> int:
        """Return how many are kept."""
        return len(self._young.keys() | self._old.keys())

    def get(self, key: K) -> V | None:
        """Return the value of a key, which is used with this; None if it is not kept."""
        value = self._young.get(key)
        if value is None:
            value = self._old.get(key)
            if value is not None:
                self.put(key, value)
        return value

    def put(self, key: K, value: V) -> None:
        """Keep a value."""
        if len(self._young) >= self._full:
            self._young, self._old = {}, self._young
        self._young[key] = value


class SeenTexts:
    """Remembers texts, however many, by 64 bits of hash each: about a dozen bytes.

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
