"""The scheduler's own operations: requests that become items, of which a page may yield many."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.model import item_names, slots
from scrapy_itemgraph.model.operations import CreateItem

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

OF_REQUESTS = frozenset({"url", "request", "download_slot"})  # keys of a request item's data
WHENEVER = 2**31 - 1  # `again` for what is fetched again whenever it is yielded
_TEXT = json.JSONEncoder(ensure_ascii=False, check_circular=False)
_URL = '{"url": '  # how the data of a request begins


class EnqueueRequest(CreateItem):
    """Make a Request an item; the scheduler's own operation, whose values are storable already.

    If the item exists, its results of runs before the number `again` become stale, and it takes
    `data`; with `only_gone` those alone whose page was gone. `changed_at` is when its page is said
    to have changed: a result from before that becomes stale as well.
    A page may yield a great many of them, so each is small: the data is kept as JSON `text`.
    """

    def __init__(
        self,
        *,
        id: str,  # noqa: A002 - the operations' name for it
        tags: tuple[str, ...],
        data: Mapping[str, Any],
        nice: int | None = None,
        again: int | None = None,
        only_gone: bool = False,
        changed_at: datetime | None = None,
    ) -> None:
        keep = object.__setattr__
        keep(self, "id", id)
        keep(self, "tags", tags)
        keep(self, "text", _TEXT.encode(data))
        keep(self, "slot", slots.slot_of(data))
        keep(self, "shown", item_names.label(id, data))
        keep(self, "nice", nice)
        keep(self, "again", again)
        keep(self, "only_gone", only_gone)
        keep(self, "changed_at", changed_at)

    @property
    def data(self) -> dict[str, Any]:
        """The data of the item, as a new dict each time."""
        data: dict[str, Any] = json.loads(self.text)
        return data

    if TYPE_CHECKING:
        text: str
        slot: str
        shown: str
        again: int | None
        only_gone: bool
        changed_at: datetime | None

    def named(self) -> set[str]:
        """Return the item's name when it may be fetched again."""
        return set() if self.again is None and self.changed_at is None else {self.id}


class Pattern:
    """Makes the operations for requests that are like a first one, and differ in their URL."""

    __slots__ = ("_first", "_method", "_rest", "_slot")

    def __init__(self, first: EnqueueRequest) -> None:
        data = first.data
        _, self._method = item_names.page_of(data)
        self._first = first
        self._slot = first.slot if "download_slot" in data else None
        self._rest = first.text.removeprefix(_URL + _TEXT.encode(data["url"]))

    def operation(self, name: str, url: str, changed_at: datetime | None = None) -> EnqueueRequest:
        """Return the operation for a URL, which must be ASCII without NUL."""
        first = self._first
        operation = object.__new__(EnqueueRequest)
        keep = object.__setattr__
        keep(operation, "id", name)
        keep(operation, "tags", first.tags)
        keep(operation, "text", f"{_URL}{_TEXT.encode(url)}{self._rest}")
        keep(operation, "slot", slots.of_url(url) if self._slot is None else self._slot)
        keep(operation, "shown", item_names.label_of(name, url, self._method))
        keep(operation, "nice", first.nice)
        keep(operation, "again", first.again)
        keep(operation, "only_gone", first.only_gone)
        keep(operation, "changed_at", changed_at)
        return operation
