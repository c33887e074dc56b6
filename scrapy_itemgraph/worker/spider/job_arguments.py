"""Which arguments a process of the queue may have: whoever adds a crawl chooses them."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.exceptions import ConfigurationError
from scrapy_itemgraph.model import crawl_arguments
from scrapy_itemgraph.tools.path_parts import stays_inside

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scrapy import Spider

_PLACEHOLDER = re.compile(r"%\((\w+)\)")


def reserved_by(spider: type[Spider]) -> frozenset[str]:
    """Return the attributes of `scrapy.Spider` that a crawl of the queue may not set by `-a`.

    What the spider's own `__init__` or `from_crawler` names is an argument of the project.
    """
    own = [
        vars(cls)[method]
        for cls in spider.__mro__
        for method in ("__init__", "from_crawler")
        if method in vars(cls) and cls.__module__.partition(".")[0] not in {"scrapy", "builtins"}
    ]
    named = {
        one.name
        for method in own
        for one in inspect.signature(getattr(method, "__func__", method)).parameters.values()
        if one.kind in {one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY}
    }
    return crawl_arguments.RESERVED - (named - crawl_arguments.NEVER)


def check_reserved(spider: type[Spider], arguments: Iterable[str]) -> None:
    """Refuse arguments that would replace what Scrapy has on a spider.

    Raises:
        ConfigurationError: there is one.

    """
    for name in crawl_arguments.reserved(arguments, reserved_by(spider)):
        raise ConfigurationError(crawl_arguments.reserved_error(name, spider.name))


def check_feeds(feeds: Iterable[Any], arguments: Mapping[str, Any]) -> None:
    """Refuse arguments that would lead a feed out of its folder.

    Raises:
        ConfigurationError: there is one; it names the feed, and what to give instead.

    """
    for template in map(str, feeds):
        for found in _PLACEHOLDER.finditer(template):
            name = found[1]
            if name not in arguments:
                continue
            value = str(arguments[name])
            if not stays_inside(value, begins=found.start() == 0):
                raise ConfigurationError(
                    f"the argument {name}={value!r:.80} would lead the feed {template:.200} out "
                    "of its folder; give a crawl of the queue one without .., and without a slash "
                    "at its beginning"
                )
