"""A mapping for a great many texts, which grows in small steps."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from itertools import chain
from typing import TypeVar

V = TypeVar("V")

MANY = 300_000
"""Keys from which on a dict takes long to grow: 10 ms and more at once."""

_PARTS = 64
_LAST = _PARTS - 1


class PartedDict(MutableMapping[str, V]):
    """A mapping whose keys are spread over dicts by their hash, in no order.

    A dict of 700,000 texts that grows copies them all at once, in 50 to 100 ms. Each of these parts
    grows by itself, in about a millisecond.
    """

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[dict[str, V]] = [{} for _ in range(_PARTS)]

    def __getitem__(self, key: str) -> V:
        return self._parts[hash(key) & _LAST][key]

    def __setitem__(self, key: str, value: V) -> None:
        self._parts[hash(key) & _LAST][key] = value

    def __delitem__(self, key: str) -> None:
        del self._parts[hash(key) & _LAST][key]

    def __contains__(self, key: object) -> bool:
        return key in self._parts[hash(key) & _LAST]

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._parts)

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def popitem(self) -> tuple[str, V]:
        """Take out any key with its value; KeyError where there is none."""
        for part in self._parts:
            if part:
                return part.popitem()
        raise KeyError("the mapping is empty")


def mapping_for(count: int) -> MutableMapping[str, V]:
    """Return an empty mapping for about so many keys: a dict, or where they are many one in parts.

    Iterate over it for its keys alone, for only a dict keeps their order.
    """
    return {} if count < MANY else PartedDict()
