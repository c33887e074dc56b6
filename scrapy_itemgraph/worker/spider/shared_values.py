"""Values that requests of one callback share: each of them gets a copy of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from itemadapter import is_item

from scrapy_itemgraph.tools import logs

if TYPE_CHECKING:
    from scrapy import Request

    from scrapy_itemgraph.worker.executions.execution import Execution

logger = logs.logger(__name__)

# In a request's meta: what Scrapy puts there, and copies itself.
_SCRAPYS = {"redirect_urls", "redirect_reasons", "handle_httpstatus_list"}


def _is_changeable(value: Any) -> bool:
    return isinstance(value, list | set) or is_item(value)  # dicts are items


@dataclass(slots=True, eq=False, repr=False)
class SharedValues:
    """Warns of dicts, lists, sets and items that two requests of one callback have in common.

    A request is stored when it is yielded. What a callback puts into such a value later no other
    one sees, so that "when all three have come" never comes.
    """

    _said: set[tuple[str, str]] = field(default_factory=set)  # callbacks and keys

    def look(self, request: Request, execution: Execution) -> None:
        """Look at a request that will be stored, and say once of a callback and key what is so."""
        own: dict[int, tuple[str, Any]] = {}  # one of a request that has it twice
        for key, value in request.cb_kwargs.items():
            if _is_changeable(value):
                own[id(value)] = f"cb_kwargs[{key!r}]", value
        for key, value in request.meta.items():
            if _is_changeable(value) and key not in _SCRAPYS:
                own[id(value)] = f"meta[{key!r}]", value
        for key, value in own.values():
            self._note(key, value, execution)

    def _note(self, key: str, value: Any, execution: Execution) -> None:
        shared = execution.given.get(id(value))
        execution.given[id(value)] = value  # kept, so that no other value gets its id
        place = (execution.claim.task if execution.claim else "start()", key)
        if shared is None or place in self._said:
            return
        self._said.add(place)
        logger.warning(
            "%s: two of its requests have the same %s as %s. Each is stored with a copy of its "
            "own, so what one callback changes in it no other one sees; keep it in an item, or in "
            "self.state (docs: an existing project, what callbacks keep)",
            execution.where,
            type(value).__name__,
            key,
            extra={"action": "shared_value", "key": key},
        )
