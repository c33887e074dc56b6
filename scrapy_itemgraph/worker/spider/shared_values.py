"""Values that requests of one callback share: each of them gets a copy of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.tools import logs

if TYPE_CHECKING:
    from scrapy import Request

    from scrapy_itemgraph.worker.executions.execution import Execution

logger = logs.logger(__name__)

_CHANGEABLE = (dict, list, set)
# In a request's meta: what Scrapy puts there, and copies itself.
_SCRAPYS = {"redirect_urls", "redirect_reasons", "handle_httpstatus_list"}


@dataclass(slots=True, eq=False, repr=False)
class SharedValues:
    """Warns of dicts, lists and sets that two requests of one callback have in common.

    A request is stored when it is yielded. What a callback puts into such a value later no other
    one sees, so that "when all three have come" never comes.
    """

    _said: set[tuple[str, str]] = field(default_factory=set)  # callbacks and keys

    def look(self, request: Request, execution: Execution) -> None:
        """Look at a request that will be stored, and say once of a callback and key what is so."""
        for key, value in request.cb_kwargs.items():
            if isinstance(value, _CHANGEABLE):
                self._note(f"cb_kwargs[{key!r}]", value, execution)
        for key, value in request.meta.items():
            if isinstance(value, _CHANGEABLE) and key not in _SCRAPYS:
                self._note(f"meta[{key!r}]", value, execution)

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
