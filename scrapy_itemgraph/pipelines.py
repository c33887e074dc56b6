"""The last item pipeline: scraped items become items of the graph, as `ITEMGRAPH_ITEMS` says."""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from itemadapter import ItemAdapter
from scrapy.utils.misc import load_object

from scrapy_itemgraph import crawl as crawls
from scrapy_itemgraph.exceptions import ConfigurationError, OperationError
from scrapy_itemgraph.executions import current
from scrapy_itemgraph.operations import CreateItem, Operation, UpdateData

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

    from scrapy.crawler import Crawler

    from scrapy_itemgraph.crawl import Crawl

_FIELDS = {"id", "tags", "aliases"}
_EMPTY: tuple[Any, ...] = (None, "", [], {}, ())


class ItemGraphPipeline:
    """Adds what scraped items say to the execution that scraped them."""

    def __init__(self, crawl: Crawl, rules: Mapping[type, Rule]) -> None:
        self._crawl = crawl
        self._rules = rules

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the pipeline of a crawler, with the rules of its settings."""
        crawl = crawls.of(crawler)
        return cls(crawl, read_rules(crawl.settings.items))

    def process_item(self, item: Any) -> Any:
        """Take the item's operations; the item itself goes on unchanged."""
        rule = next((self._rules[c] for c in type(item).__mro__ if c in self._rules), None)
        if rule is not None:
            execution = current.get()
            if execution is not None and execution.is_ended:
                execution = None
            where = execution.where if execution else f"spider {self._crawl.spider.name}"
            changes = [self._crawl.checked(o, execution, where) for o in rule.operations(item)]
            if execution is None:
                self._crawl.apply(changes, where)
            else:
                for change in changes:
                    execution.add(change)
        return item


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
        data = fields.asdict()
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
