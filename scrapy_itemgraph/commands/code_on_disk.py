"""The code of the project's tasks as it is here now, by which workers of older code are told."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from scrapy.spiderloader import get_spider_loader

from scrapy_itemgraph import spiderloader
from scrapy_itemgraph.model import tasks
from scrapy_itemgraph.worker.spider import callbacks, methods

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from scrapy.settings import BaseSettings


Sources: TypeAlias = "Callable[[str, str], UUID | None]"


def sources(settings: BaseSettings, note: Callable[[str], None]) -> Sources:
    """Return what gives the digest of the code of a spider's task; None where it is not here.

    Where the code cannot be loaded that is said by `note`, and no task's is here.
    """

    @cache
    def loader() -> Any:
        return get_spider_loader(settings)

    @cache
    def loaded(spider: str) -> Any:
        try:
            if spider in loader().list():
                spider_class = loader().load(spider)
            else:
                spider_class = spiderloader.package_spider(settings, spider)
            return None if spider_class is None else (spider_class, tasks.discover(spider_class))
        except Exception as error:  # noqa: BLE001 - the modules are the user's, and run now
            note(
                f"the spider {spider} cannot be loaded here, so that workers of older code are "
                f"not told from others: {type(error).__name__}: {error}"
            )
            return None

    def source_of(spider: str, task: str) -> UUID | None:
        if (found := loaded(spider)) is None:
            return None
        spider_class, declared = found
        return methods.source_of(spider_class, callbacks.method_of(declared, task))

    return source_of
