"""Names that a worker knows to be taken, so that creating them once more need not be looked up.

Most links of a page lead to what the crawl has already. Names are freed by few commits, and each of
these counts in its crawl (`crawls.names_freed`); while that count is the same, what was taken is.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, TypeGuard

from scrapy_itemgraph.model.operations import CreateItem, DeleteAlias, DeleteItem
from scrapy_itemgraph.model.work import NEW
from scrapy_itemgraph.tools.caches import KnownNames

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Sequence

    from scrapy_itemgraph.model.operations import Operation
    from scrapy_itemgraph.model.work import Applied

_MOST = 50_000
_OF_CHANGESET = 1000  # names that are learned of one
FREEING = frozenset({DeleteItem, DeleteAlias})  # classes of operations that free names
_TAKEN = {NEW, "known"}


class TakenNames:
    """Names that are taken in a crawl, as of a count of the commits that have freed some."""

    def __init__(self) -> None:
        self._names = KnownNames(_MOST)
        self._freed = -1

    def as_of(self, freed: int) -> Container[str]:
        """Return the names that are taken, by the count that a batch finds."""
        if freed != self._freed:
            self._names = KnownNames(_MOST)
            self._freed = freed
        return self._names

    def learn(self, applied: Sequence[Applied], freed: int) -> None:
        """Take note of what a batch created or found, once that is committed."""
        if freed != self._freed or any(one.may_free for one in applied):
            return  # what was created may be gone by the end of the same batch
        for one in applied:
            for note in islice(one.notes, _OF_CHANGESET):
                if note.operation == CreateItem.verb and note.label in _TAKEN:
                    self._names.add(note.text)


def may_free(operations: Collection[Operation]) -> bool:
    """Tell whether names that others know may be free after these operations."""
    return not FREEING.isdisjoint(map(type, operations))


def is_settled(operation: Operation, taken: Container[str]) -> TypeGuard[CreateItem]:
    """Tell whether an operation does nothing, for it creates what is there."""
    return (
        type(operation) is CreateItem
        and not (operation.fail_if_exists or operation.merge_tags)
        and operation.id in taken
    )
