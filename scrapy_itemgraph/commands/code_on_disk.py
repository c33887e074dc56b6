"""The code of the project's tasks as it is here now, by which workers of older code are told."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from scrapy.spiderloader import get_spider_loader

from scrapy_itemgraph.model import tasks
from scrapy_itemgraph.worker.spider import callbacks

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from scrapy.settings import BaseSettings


Sources: TypeAlias = "Callable[[str, str], UUID | None]"


def unknown(_settings: BaseSettings) -> Sources:
    """Return what takes the code of no task to be known here."""
    return lambda _spider, _task: None


def sources(settings: BaseSettings) -> Sources:
    """Return what gives the digest of the code of a spider's task; None where it is not here."""
    loader: Any = get_spider_loader(settings)
    known = set(loader.list())
    declared = cache(tasks.discover)

    def source_of(spider: str, task: str) -> UUID | None:
        if spider not in known:
            return None
        spider_class = loader.load(spider)
        return callbacks.source_of(spider_class, declared(spider_class), task)

    return source_of
