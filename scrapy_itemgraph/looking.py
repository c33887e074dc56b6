"""What `scrapy parse` shows of operations, which have no graph to go to there."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from scrapy.utils import display

from scrapy_itemgraph.model.operations import Operation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_HEADING = "# Operations "
_RULE = "-" * 63  # to the end of Scrapy's own headings
_PATCHED = "_itemgraph_operations"  # on the command: the operations of each level


def show_operations() -> None:
    """Have the command that runs print operations by class, and not among the scraped items.

    Scrapy has no hook for that: it takes what the callback yields before any middleware does.
    """
    module = sys.modules.get("scrapy.commands.parse")
    if module is None or hasattr(module.Command, _PATCHED):
        return
    command = module.Command
    taken: dict[int, list[Operation]] = defaultdict(list)
    setattr(command, _PATCHED, taken)
    sort, show = command._get_items_and_requests, command.print_items  # noqa: SLF001

    @functools.wraps(sort)
    def sort_others(
        self: Any, spider_output: Iterable[Any], opts: Any, depth: int, *rest: Any
    ) -> Any:
        outputs = list(spider_output)
        taken[depth] += [one for one in outputs if isinstance(one, Operation)]
        others = [one for one in outputs if not isinstance(one, Operation)]
        return sort(self, others, opts, depth, *rest)

    @functools.wraps(show)
    def show_all(self: Any, lvl: int | None = None, colour: bool = True) -> None:
        show(self, lvl, colour)
        levels = taken.values() if lvl is None else [taken[lvl]]
        for line in _lines([one for level in levels for one in level], colour=colour):
            print(line)  # noqa: T201 - as the command does

    command._get_items_and_requests = sort_others  # noqa: SLF001
    command.print_items = show_all


def _lines(operations: Sequence[Operation], *, colour: bool) -> Iterator[str]:
    if not operations:
        return
    yield f"{_HEADING} {_RULE}"
    by_class: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for one in operations:
        by_class[type(one).__name__].append(_given(one))
    for name, group in by_class.items():
        yield f"## {name} ({len(group):,})"
        yield display.pformat(group, colorize=colour).rstrip("\n")


def _given(operation: Operation) -> dict[str, Any]:
    """Return the fields of an operation that differ from their defaults."""
    fields = [one for one in dataclasses.fields(operation) if one.init]
    given = {one.name: getattr(operation, one.name) for one in fields}
    return {one.name: given[one.name] for one in fields if given[one.name] != _default(one)}


def _default(field: dataclasses.Field[Any]) -> Any:
    is_made = field.default_factory is not dataclasses.MISSING
    return field.default_factory() if is_made else field.default  # type: ignore[operator]
