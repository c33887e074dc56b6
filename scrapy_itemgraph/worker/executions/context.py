"""The `item` that callbacks get: what was claimed, and what else they may ask."""

from __future__ import annotations

import copy
import logging
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from scrapy_itemgraph.exceptions import InvalidDataError
from scrapy_itemgraph.model import attempt_logs, item_names
from scrapy_itemgraph.model.attempt_logs import LogLine
from scrapy_itemgraph.tools import logs
from scrapy_itemgraph.tools.hiding import hidden

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scrapy_itemgraph.model.snapshots import ItemSnapshot
    from scrapy_itemgraph.model.work import Claim

logger = logs.logger(__name__)

LEVELS = {
    "error": logging.ERROR,
    "warn": logging.WARNING,
    "info": logging.INFO,
    "debug": logging.DEBUG,
}


class Graph(Protocol):
    """What an item asks of the graph."""

    async def get_item(self, name: str) -> ItemSnapshot | None:
        """Return an item by any of its names."""

    async def get_metadata(
        self, name: str, task: str, *, only_fresh: bool
    ) -> dict[str, Any] | None:
        """Return the metadata of an item's result."""


class ItemContext:
    """The item under work, as it was when it was claimed."""

    def __init__(
        self,
        *,
        id: str,  # noqa: A002 - the contract's name
        task: str,
        attempt: int = 1,
        aliases: tuple[str, ...] = (),
        tags: Mapping[str, Any] | None = None,
        data: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
        graph: Graph | None = None,
        keep_logs: int = 0,
    ) -> None:
        self.id = id
        self.aliases = aliases
        self.tags: Mapping[str, Any] = tags or {}
        self.data = data if data is not None else {}
        self._metadata = metadata
        self.task = task
        self.attempt = attempt
        self._graph = graph
        self._keep_logs = keep_logs  # lines at most
        self._claimed_at = time.monotonic()
        self._log: deque[LogLine] | None = None
        self._left_out = 0  # earlier lines

    @classmethod
    def claimed(cls, claim: Claim, graph: Graph, *, keep_logs: int = 0) -> ItemContext:
        """Return the item of a claim; no two claims of an item share what callbacks may change.

        The last `keep_logs` lines that callbacks log are kept for its attempt.

        Raises:
            InvalidDataError: when callbacks could not use its data, which is no JSON object.

        """
        snapshot = claim.item
        for what, value in (
            ("data is", snapshot.data),
            ("tags are", snapshot.tags),
            ("metadata is", claim.metadata or {}),
        ):
            if not isinstance(value, dict):
                raise InvalidDataError(
                    f"the item's {what} no JSON object that can be read: {value!r:.80}; delete the "
                    "item, and have it made again"
                )
        return cls(
            id=snapshot.id,
            task=claim.task,
            attempt=claim.attempt,
            aliases=snapshot.aliases,
            tags=copy.deepcopy(dict(snapshot.tags)),
            data=copy.deepcopy(snapshot.data),
            metadata=claim.metadata,
            graph=graph,
            keep_logs=keep_logs,
        )

    @classmethod
    def blank(cls, task: str = "") -> ItemContext:
        """Return an item for trying a callback without a database."""
        return cls(id="", task=task, metadata={})

    def __repr__(self) -> str:
        return f"<item {self.id!r}, task {self.task!r}, attempt {self.attempt}>"

    @property
    def metadata(self) -> dict[str, Any]:
        """The task's own metadata of the item; only tasks with `request=` have it loaded."""
        if self._metadata is None:
            raise AttributeError(
                f"the task {self.task!r} has no request=, so an item has no metadata with it; "
                "`await item.get_metadata()` loads it"
            )
        return self._metadata

    def log(self, category: str, message: str) -> None:
        """Log a line about this item, and keep it for the attempt.

        Categories that are no level are shown at DEBUG.
        """
        logger.log(
            LEVELS.get(category, logging.DEBUG),
            "[%s] %s (%s): %s",
            category,
            item_names.label(self.id, self.data),
            self.task,
            message,
            extra={"action": "item_log", "item": self.id, "task": self.task, "category": category},
        )
        if self._keep_logs:
            self._keep(category, message)

    def _keep(self, category: str, message: str) -> None:
        if self._log is None:
            self._log = deque(maxlen=self._keep_logs)
        self._left_out += len(self._log) == self._keep_logs
        line = LogLine(
            round(time.monotonic() - self._claimed_at, 3),
            attempt_logs.cut(str(category), attempt_logs.MOST_OF_CATEGORY),
            attempt_logs.cut(hidden(str(message))),
        )
        self._log.append(line)

    def kept_log(self) -> Sequence[LogLine]:
        """Return what was logged, the last lines of it; the first says if there were more."""
        if not self._log:
            return ()
        if not self._left_out:
            return tuple(self._log)
        said = f"{self._left_out:,} earlier lines are left out (ITEMGRAPH_KEEP_LOGS)"
        return LogLine(self._log[0].seconds, "warn", said), *self._log

    def forget_log(self) -> None:
        """Let go of what was logged: it is committed."""
        self._log = None
        self._left_out = 0

    async def get_item(self, id: str) -> ItemSnapshot | None:  # noqa: A002 - the contract's name
        """Return another item as it is committed now, by any of its names, or None."""
        return await self._graph.get_item(id) if self._graph else None

    async def get_metadata(
        self,
        task: str | None = None,
        *,
        id: str | None = None,  # noqa: A002 - the contract's name
        only_fresh: bool = False,
    ) -> dict[str, Any] | None:
        """Return a task's metadata of an item as committed now; by default of this one."""
        if self._graph is None:
            return None
        return await self._graph.get_metadata(
            self.id if id is None else id, task or self.task, only_fresh=only_fresh
        )
