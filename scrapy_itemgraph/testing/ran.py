"""What a run did, and what it would change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from scrapy import Request

    from scrapy_itemgraph.model.attempt_logs import LogLine
    from scrapy_itemgraph.model.operations import Operation
    from scrapy_itemgraph.model.simulations import Change, ItemPicture
    from scrapy_itemgraph.model.work import ErrorRecord, Outcome


@dataclass(frozen=True, kw_only=True)
class Ran:
    """What a task or a plain callback did.

    `operations` and `requests` are what its callbacks yielded, in their order, as spider
    middlewares left it; `items` are scraped items, as item pipelines left them. `outcome` is
    "ok", "failed", "refused", "gone", "retry" (in `retry_in`) or "released"; `error` says why.
    `log` has the lines of `item.log`. `changes` are the items that a crawl's commit would change.
    """

    outcome: Outcome
    error: ErrorRecord | None
    retry_in: timedelta | None
    operations: list[Operation]
    requests: list[Request]
    items: list[Any]
    log: Sequence[LogLine]
    changes: Sequence[Change]
    item_id: str

    @property
    def item(self) -> ItemPicture | None:
        """The item of the run as it would be then; None if it would be deleted."""
        return self.after(self.item_id)

    def after(self, name: str) -> ItemPicture | None:
        """Return a new or changed item, by its id or an alias; None if no such item changes."""
        pictures = (one.after for one in self.changes if one.after is not None)
        return next((one for one in pictures if name in {one.id, *one.aliases}), None)
