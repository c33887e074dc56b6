"""The last item pipeline: scraped items become items of the graph, and are kept.

`ITEMGRAPH_ITEMS` says which become items, `ITEMGRAPH_KEEP_ITEMS` whether all are kept.
"""

from __future__ import annotations

import json
import string
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from itemadapter import ItemAdapter
from scrapy.utils.misc import load_object

from scrapy_itemgraph.exceptions import ConfigurationError, OperationError, UnstorableError
from scrapy_itemgraph.model.feed_exports import Scraped
from scrapy_itemgraph.model.operations import CreateItem, Operation, UpdateData
from scrapy_itemgraph.serialize import json_values
from scrapy_itemgraph.worker import worker as workers
from scrapy_itemgraph.worker.executions.execution import current_leg, task_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

    from scrapy.crawler import Crawler

    from scrapy_itemgraph.worker.worker import Worker

_FIELDS = {"id", "tags", "aliases"}
_EMPTY: tuple[Any, ...] = (None, "", [], {}, ())


class ItemGraphPipeline:
    """Adds what scraped items say to the execution that scraped them."""

    def __init__(
        self, worker: Worker, rules: Mapping[type, Rule], *, keep_items: bool = False
    ) -> None:
        self._worker = worker
        self._rules = rules
        self._keep_items = keep_items

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the pipeline of a crawler, with the rules of its settings."""
        worker = workers.of(crawler)
        settings = worker.settings.scraped_items
        return cls(worker, read_rules(settings.items), keep_items=bool(settings.keep_items))

    def process_item(self, item: Any) -> Any:
        """Take the item's operations, and what is kept of it; the item goes on unchanged."""
        rule = next((self._rules[c] for c in type(item).__mro__ if c in self._rules), None)
        leg = current_leg.get()
        execution = None if leg is None or leg.execution.ended.is_set() else leg.execution
        if rule is not None or self._keep_items:
            where = execution.where if execution else f"spider {self._worker.spider.name}"
            given = () if rule is None else rule.operations(item)
            changes = [self._worker.parts.checks.checked(one, execution, where) for one in given]
            scraped = [_scraped(item, where)] if self._keep_items else []
            if execution is None:
                self._worker.parts.active.apply(changes, where, scraped=scraped)
            else:
                for change in changes:
                    execution.count_output()
                    execution.add(change)
                execution.scraped += scraped
        if execution is not None:
            execution.items_scraped += 1
        self._worker.base.tallies.of_task(task_of(leg)).scraped += 1
        return item


def _scraped(item: Any, where: str) -> Scraped:
    """Return what is kept of an item: its fields as they are now.

    Raises:
        UnstorableError: naming the class and the field of a value that cannot be stored.

    """
    cls = type(item)
    name = "dict" if cls is dict else f"{cls.__module__}.{cls.__qualname__}"
    what = f"{where}: ITEMGRAPH_KEEP_ITEMS: {name}"
    try:
        fields = _plain(item)
    except RecursionError:
        raise UnstorableError(f"{what} contains itself, or is nested too deeply") from None
    return Scraped(name, json.dumps(json_values.dump(fields, what)))


def _plain(value: Any) -> Any:
    """Return a value in which all items are dicts; what has names or a class of its own stays."""
    kind = type(value)
    if kind in {list, tuple, set, frozenset}:
        return kind(_plain(part) for part in value)
    if ItemAdapter.is_item(value):
        return {field: _plain(part) for field, part in ItemAdapter(value).items()}
    return value


class Rule:
    """How items of one class become items of the graph."""

    def __init__(self, name: str, given: Mapping[str, Any]) -> None:
        self._name = name
        self._id = given["id"]
        self._aliases = given.get("aliases", ())
        self._tags = given.get("tags", ())

    def operations(self, item: Any) -> Iterable[Operation]:
        """Return the operations that create the item, or merge its data."""
        fields = ItemAdapter(item)
        name = _fill(self._id, item, fields)
        if name is None:
            raise OperationError(
                f"ITEMGRAPH_ITEMS[{self._name!r}]: the id {self._id!r} needs a field that is "
                f"missing or empty in {item!r:.200}"
            )
        given = self._aliases(item) if callable(self._aliases) else self._aliases
        aliases = [_fill(alias, item, fields) for alias in given]
        tags = self._tags(item) if callable(self._tags) else self._tags
        try:
            data = fields.asdict()
        except RecursionError:
            raise OperationError(
                f"ITEMGRAPH_ITEMS[{self._name!r}]: it contains itself, or is nested too deeply"
            ) from None
        yield CreateItem(
            id=name, tags=tags, data=data, aliases=[alias for alias in aliases if alias is not None]
        )
        yield UpdateData(data, id=name)


def read_rules(given: Mapping[Any, Any]) -> dict[type, Rule]:
    """Read `ITEMGRAPH_ITEMS`."""
    rules = {}
    for key, rule in given.items():
        setting = f"ITEMGRAPH_ITEMS[{key!r}]"
        if not isinstance(rule, Mapping) or "id" not in rule or rule.keys() - _FIELDS:
            raise ConfigurationError(f'{setting}: write a dict with "id", and "tags", "aliases"')
        if isinstance(rule.get("tags"), str) or isinstance(rule.get("aliases"), str):
            raise ConfigurationError(f"{setting}: tags and aliases are lists")
        rules[_load_class(key, setting)] = Rule(str(key), rule)
    return rules


def _load_class(key: Any, setting: str) -> type:
    try:
        cls = dict if key == "dict" else load_object(key)
    except (ImportError, NameError, ValueError, TypeError) as error:
        raise ConfigurationError(f"{setting}: {error}") from None
    if not isinstance(cls, type):
        raise ConfigurationError(f"{setting} is no class")
    return cls


def _fill(template: Any, item: Any, fields: ItemAdapter) -> str | None:
    if callable(template):
        filled: str | None = template(item)
        return filled
    names = [name for _, name, _, _ in string.Formatter().parse(template) if name is not None]
    roots = {name.partition(".")[0].partition("[")[0] for name in names}
    if any(fields.get(root) in _EMPTY for root in roots):
        return None
    return str(template.format_map(fields))
