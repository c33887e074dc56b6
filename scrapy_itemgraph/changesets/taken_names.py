"""Names that a worker knows to be taken, so that creating them once more need not be looked up.

Most links of a page lead to what the crawl has already. Names are freed by few commits, and each of
these counts in its crawl (`crawls.names_freed`); while that count is the same, what was taken is.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, TypeGuard

from scrapy_itemgraph.model.operations import CreateItem, DeleteAlias, DeleteItem
from scrapy_itemgraph.model.work import NEW
from scrapy_itemgraph.tools.known_names import KnownNames

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Sequence

    from scrapy_itemgraph.model.operations import Changeset, Operation
    from scrapy_itemgraph.model.work import Applied

_MOST = 50_000
_OF_CHANGESET = 1000  # names that are learned of one
_FREEING = {DeleteItem, DeleteAlias}
_TAKEN = {NEW, "known"}


class TakenNames:
    """Names that are taken in a crawl, as of a count of the commits that have freed some."""

    def __init__(self) -> None:
        self._names = KnownNames(_MOST)
        self._freed = -1

    def of_batch(self, operations: Collection[Operation], freed: int) -> Container[str]:
        """Return the names that operations may take for taken, by the count that they find."""
        if freed != self._freed:
            self._names = KnownNames(_MOST)
            self._freed = freed
        return () if _may_free(operations) else self._names

    def learn(
        self, changesets: Sequence[Changeset], applied: Sequence[Applied], freed: int
    ) -> None:
        """Take note of what a batch created or found, once that is committed."""
        if freed != self._freed or any(_may_free(one.operations) for one in changesets):
            return  # what was created may be gone by the end of the same batch
        for one in applied:
            for note in islice(one.notes, _OF_CHANGESET):
                if note.operation == CreateItem.verb and note.label in _TAKEN:
                    self._names.add(note.text)


def _may_free(operations: Collection[Operation]) -> bool:
    return not _FREEING.isdisjoint(map(type, operations))


def is_settled(operation: Operation, taken: Container[str]) -> TypeGuard[CreateItem]:
    """Tell whether an operation does nothing, for it creates what is there."""
    return (
        type(operation) is CreateItem
        and not (operation.fail_if_exists or operation.merge_tags)
        and operation.id in taken
    )
