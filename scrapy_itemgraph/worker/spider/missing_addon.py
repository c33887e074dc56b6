"""Says that tasks are declared where no add-on runs them, which the add-on itself cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydispatch import dispatcher  # type: ignore[import-untyped]
from scrapy import signals

from scrapy_itemgraph.model import tasks
from scrapy_itemgraph.tools import logs

if TYPE_CHECKING:
    from scrapy import Spider

logger = logs.logger(__name__)

_PACKAGE = __name__.partition(".")[0]


def watch() -> None:
    """Look at each spider that any crawler of this process opens from now on."""
    dispatcher.connect(_spider_opened, signal=signals.spider_opened, sender=dispatcher.Any)


def _spider_opened(spider: Spider) -> None:
    crawler = spider.crawler
    settings = crawler.settings
    is_there = any(
        type(addon).__module__.partition(".")[0] == _PACKAGE for addon in crawler.addons.addons
    )
    if is_there or settings.get("ITEMGRAPH_ENABLED") not in {None, True, "1", "true", "True"}:
        return
    found = tasks.discover(type(spider))
    if found:
        logger.error(
            "The spider %r declares tasks (%s), but scrapy-itemgraph is not switched on, so none "
            'of them runs; put ADDONS = {"scrapy_itemgraph.Addon": 500} into settings.py',
            spider.name,
            ", ".join(sorted(found)),
            extra={"action": "no_addon"},
        )
