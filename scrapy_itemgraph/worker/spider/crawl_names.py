"""The name of a crawl, and the arguments of a spider that make it."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from scrapy_itemgraph.exceptions import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy import Spider

_SECRET = re.compile(r"passw|secret|token|keys?$|(^|_)(pass|pwd|o?auth)(_|$)", re.IGNORECASE)


def crawl_name(template: str, spider: Spider) -> str:
    """Return the name of the crawl, from `ITEMGRAPH_CRAWL`."""
    known = spider_arguments(spider) | {"name": spider.name}
    try:
        return template.format_map(known)
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        raise ConfigurationError(
            f"ITEMGRAPH_CRAWL = {template!r} needs {error}, which is no argument of this run; "
            f"there are {', '.join(sorted(known))}"
        ) from None


def spider_arguments(spider: Spider) -> dict[str, str]:
    """Return what a spider was started with, as far as it keeps it in its attributes.

    Scrapy passes arguments to the spider and forgets them.
    """
    return {
        name: value
        for name, value in vars(spider).items()
        if isinstance(value, str) and name != "name" and not name.startswith("_")
    }


def digests(arguments: Mapping[str, str]) -> dict[str, str]:
    """Return what tells arguments from others and keeps no value; secrets are left out."""
    return {
        name: hashlib.sha256(value.encode(errors="surrogatepass")).hexdigest()[:12]
        for name, value in arguments.items()
        if not _SECRET.search(name)
    }
