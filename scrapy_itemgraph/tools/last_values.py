"""Values by keys, those that were used last."""

from __future__ import annotations

from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LastValues(Generic[K, V]):
    """The values used last: between half of `most` and `most` of them; None is no value.

    Two dictionaries stand for an order, as in `known_names: KnownNames`.
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
