"""The tasks of a spider's plain callbacks: one each, by the method's name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.model import tasks
from scrapy_itemgraph.serialize import requests
from scrapy_itemgraph.worker.spider import methods

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from uuid import UUID

    from scrapy import Spider

    from scrapy_itemgraph.model.tasks import Task


@dataclass(slots=True, eq=False, repr=False)
class CallbackTasks:
    """Makes tasks of plain callbacks, and knows those that the graph has still to be told of.

    `declared` are the spider's own tasks by name, `options` is ITEMGRAPH_CALLBACKS.
    """

    spider: Spider
    declared: Mapping[str, Task]
    options: Mapping[str, Mapping[str, Any]]
    _unregistered: dict[str, Task] = field(default_factory=dict)

    def task_of(self, name: str) -> Task:
        """Return the task of a plain callback."""
        options = self.options.get(name.removeprefix(tasks.SET_ASIDE), {})
        return tasks.of_callback(name, options)

    def has(self, name: str) -> bool:
        """Tell whether the spider has the callback of a task that any worker registered."""
        return requests.has_method(self.spider, name.removeprefix(tasks.SET_ASIDE))

    def source_of(self, name: str) -> UUID | None:
        """Return a digest of the code of a task or plain callback, as far as there is one."""
        declared = self.declared.get(name)
        method = declared.method if declared else name.removeprefix(tasks.SET_ASIDE)
        return methods.source_of(self.spider, method)

    def meet(self, name: str, registered: Collection[str]) -> str:
        """Return the name of a plain callback's task, which will be there at the next commit.

        `registered` are the names of those that the graph has.
        """
        aside = tasks.SET_ASIDE + name
        if name in self.declared or aside in registered:
            name = aside
        if name not in registered and name not in self._unregistered:
            self._unregistered[name] = self.task_of(name)
        return name

    def unregistered(self) -> Sequence[Task]:
        """Return the tasks that the graph does not have; they stay so until `registered`."""
        return list(self._unregistered.values())

    def registered(self, new: Sequence[Task]) -> None:
        """Take note that the graph has these tasks now."""
        for task in new:
            self._unregistered.pop(task.name, None)
