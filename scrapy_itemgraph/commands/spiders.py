"""The project's spiders, by their names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy.spiderloader import get_spider_loader

from scrapy_itemgraph.exceptions import NotFoundError
from scrapy_itemgraph.tools.wording import closest

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.settings import BaseSettings


def spider_class(settings: BaseSettings, name: str) -> type[Spider]:
    """Load the class of a spider.

    Raises:
        NotFoundError: the project has none of this name; it says which are near.

    """
    loader: Any = get_spider_loader(settings)
    known = loader.list()
    if name not in known:
        listed = ", ".join(sorted(known)) or "none"
        raise NotFoundError(
            f"there is no spider {name!r}{closest(name, known)}; the project has {listed}"
        )
    found: type[Spider] = loader.load(name)
    return found
