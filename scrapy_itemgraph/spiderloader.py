"""The spiders that come with the package, found behind the project's own.

`scrapy list` shows the project's alone; Scrapy asks a loader of its own there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.settings import SETTINGS_PRIORITIES
from scrapy.spiderloader import SpiderLoader as ScrapysSpiderLoader
from scrapy.utils.misc import load_object

from scrapy_itemgraph.model import package_spiders

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.settings import BaseSettings

_SETTING = "SPIDER_LOADER_CLASS"


class SpiderLoader(ScrapysSpiderLoader):
    """Scrapy's spider loader, which also loads spiders of the package, and lists none of them.

    Nothing of theirs is imported before one of them is asked for.
    """

    def load(self, spider_name: str) -> type[Spider]:
        """Return the class of a spider; the project's own where both have the name.

        Raises:
            KeyError: neither has it.

        """
        try:
            return super().load(spider_name)
        except KeyError:
            if spider_name not in package_spiders.SPIDERS:
                raise
            return _load(spider_name)


def install(settings: BaseSettings) -> None:
    """Have a process find spiders of the package, unless the project loads spiders its own way."""
    if _is_scrapys(settings):
        settings.set(_SETTING, SpiderLoader, "addon")


def package_spider(settings: BaseSettings, name: str) -> type[Spider] | None:
    """Return the class of a spider of the package; None if a process would not find it."""
    if name not in package_spiders.SPIDERS or not _is_scrapys(settings):
        return None
    return _load(name)


def _is_scrapys(settings: BaseSettings) -> bool:
    return (settings.getpriority(_SETTING) or 0) <= SETTINGS_PRIORITIES["addon"]


def _load(name: str) -> type[Spider]:
    found: type[Spider] = load_object(package_spiders.SPIDERS[name])
    return found
