"""The code that this worker's tasks run, as the database remembers it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_itemgraph.store.registry import code_changes

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Mapping, Sequence

    from scrapy_itemgraph.graph.transactions import Transactions
    from scrapy_itemgraph.model.tasks import Outdated, RegisteredTask


class WorkerCode:
    """Knows the digests of tasks' code by their names, through `source_of`."""

    def __init__(
        self, transactions: Transactions, source_of: Callable[[str], uuid.UUID | None]
    ) -> None:
        self._call = transactions.call
        self._source_of = source_of

    async def note(self, tasks: Mapping[int, RegisteredTask]) -> Sequence[Outdated]:
        """Remember what code tasks run now; return what of their fresh results is older."""
        found = {number: self._source_of(one.name) for number, one in tasks.items()}
        digests = {number: one for number, one in found.items() if one is not None}
        return await self._call(code_changes.note, digests) if digests else ()
