"""Known names: those of requests whose items are committed, as many as are worth the memory."""

from __future__ import annotations


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
