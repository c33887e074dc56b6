"""What spiders yield, checked where they yield it: operations, their names and their tags."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.exceptions import ForeignOutputError, OperationError
from scrapy_itemgraph.model import moments, operations, periods
from scrapy_itemgraph.model.operations import CreateItem, Operation
from scrapy_itemgraph.tools import logs, wording

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from scrapy_itemgraph.model.tasks import Task
    from scrapy_itemgraph.worker.executions.execution import Execution

logger = logs.logger(__name__)

TTL = "itemgraph_ttl"
"""The key of a request's meta that says for how long its result is fresh."""

CHANGED_AT = "itemgraph_changed_at"
"""The key of a request's meta that says when its page changed."""

_MOST_TAGS = 1000  # names of tags that are looked at; a spider with more draws them up


class Checks:
    """Knows a spider's tasks and tags; says once which tags are perhaps misspelt."""

    def __init__(self, tasks: Mapping[str, Task], callbacks: Collection[str]) -> None:
        self._tasks = tasks
        self._callbacks = callbacks
        self._known_tags = {tag for task in tasks.values() for tag in task.tags}
        self._other_tags: set[str] = set()

    def checked(self, operation: Operation, execution: Execution | None, where: str) -> Operation:
        """Return `operation` as it can be stored, or raise an OperationError that says why not."""
        operation = operations.checked(operation, where)
        name = type(operation).__name__
        task = getattr(operation, "task", None)
        if task is not None and task not in self._tasks and task not in self._callbacks:
            hint = wording.closest(task, self._tasks)
            raise OperationError(f"{where}: {name}: task {task!r} is no task of this spider{hint}")
        if execution is None or execution.claim is None:
            _check_names(operation, where)
        if isinstance(operation, CreateItem):
            self._check_tags([*operation.tags], operation.id, where)
        elif isinstance(operation, operations.AddTag):
            self._check_tags([operation.tag], operation.id, where)
        return operation

    def _check_tags(self, tags: Collection[str], item: str | None, where: str) -> None:
        """Warn of each tag, once, that calls for no task and may be one that does, misspelt."""
        for tag in tags:
            if tag in self._known_tags or tag in self._other_tags:
                continue
            if len(self._other_tags) == _MOST_TAGS:
                return
            self._other_tags.add(tag)
            near = wording.near_miss(tag, self._known_tags)
            if near is not None and near not in tags:
                of = "" if item is None else f" of the item {wording.one_line(item)}"
                logger.warning(
                    "%s: no task of the spider is called for by the tag %r%s; did you mean %r?",
                    where,
                    tag,
                    of,
                    near,
                    extra={"action": "unknown_tag", "tag": tag},
                )


def check_ttl(meta: Mapping[str, Any], where: str, *, is_start: bool = False) -> None:
    """Check the time to live that a request's meta asks for; that of a start request may be 0."""
    try:
        if meta.get(TTL) is not None and not (is_start and is_of_each_start(meta)):
            periods.parse_ttl(meta[TTL], f"meta[{TTL!r}]")
    except ValueError as error:
        raise OperationError(f"{where}: {error}") from None


def changed_at(meta: Mapping[str, Any], where: str) -> datetime | None:
    """Return when a request's meta says that its page changed; None if it does not say."""
    given = meta.get(CHANGED_AT)
    if given is None:
        return None
    what = f"{where}: meta[{CHANGED_AT!r}]"
    if not isinstance(given, datetime):
        raise OperationError(
            f"{what} must be a datetime, such as datetime(2026, 11, 29, 12, 30, tzinfo=UTC), not "
            f"{given!r:.100}"
        )
    moment = given if given.utcoffset() is not None else given.replace(tzinfo=UTC)
    return moments.check(moment, what).astimezone(UTC)


def is_of_each_start(meta: Mapping[str, Any]) -> bool:
    """Tell whether a start request is to be fetched at each start: its time to live is 0."""
    ttl = meta.get(TTL)
    return type(ttl) is int and ttl == 0


def foreign(output: Any, where: str) -> ForeignOutputError:
    """Return the error for something that no callback may yield."""
    return ForeignOutputError(
        f"{where}: yielded {type(output).__name__} {output!r:.80}; a callback yields operations, "
        "Requests, items (dict, scrapy.Item, dataclass, attrs, pydantic) or None"
    )


def _check_names(operation: Operation, where: str) -> None:
    for name in operation._ids:  # noqa: SLF001 - what the operation says of itself
        if getattr(operation, name, "") is None:
            raise OperationError(
                f"{where}: {type(operation).__name__}: outside a task's execution {name}= is needed"
            )
